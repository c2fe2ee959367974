"""Members of one network find each other by mDNS (RFC 6762 and 6763), by the number of a code alone."""
