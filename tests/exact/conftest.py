"""Reference and ring run in this process on the same BLAS, as the product would."""

from kafila_sidecar.runtime.mlx_thread import prefer_openblas

prefer_openblas()
