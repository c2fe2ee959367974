"""Members that lost one another's rooms tell each other by single datagrams where the session is."""
