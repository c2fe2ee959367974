"""What this machine does for Kafila: its sessions, its one socket, its MLX thread, its weights; `node` has it all."""
