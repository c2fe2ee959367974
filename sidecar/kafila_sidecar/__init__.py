"""This machine's part in Kafila sessions; `kafila-sidecar` is the process, and `node` what it consists of."""
