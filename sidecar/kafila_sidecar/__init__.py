"""This machine's part in Kafila sessions; `kafila-sidecar` is the process, and `machine.node` what it consists of."""
