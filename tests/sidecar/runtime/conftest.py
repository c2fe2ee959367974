"""MLX runs in this process, on the BLAS that the product takes."""

from kafila_sidecar.runtime.mlx_thread import prefer_openblas

prefer_openblas()
