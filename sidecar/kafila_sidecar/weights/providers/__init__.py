"""Where checkpoints come from: the Hub, its cache on this machine, a local folder."""
