"""What Kafila costs, and what it gains. MLX computes in every process of these as it does in a member's."""

from kafila_sidecar.runtime.mlx_thread import prefer_openblas

prefer_openblas()  # before anything here imports MLX
