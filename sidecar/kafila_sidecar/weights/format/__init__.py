"""What safetensors files hold, and which bytes of them belong to a stage. Pure."""
