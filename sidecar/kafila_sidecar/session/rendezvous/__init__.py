"""Speaking with a rendezvous: codes and addresses, mailboxes, mail in and out, who attends."""
