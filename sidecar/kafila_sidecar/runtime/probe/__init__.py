"""What this machine costs and holds, measured on made-up weights before there are real ones."""
