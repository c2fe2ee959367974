"""A tiny model for whoever needs one; MLX runs in this process, on the BLAS that the product takes."""

from pathlib import Path

import pytest

from kafila_sidecar.runtime.mlx_thread import prefer_openblas

prefer_openblas()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a random llama of six blocks, of a seed that says something in letters and never ends by itself."""
    from tests.support.tiny import tiny_folder

    folder = tmp_path_factory.mktemp("tiny") / "model"
    return tiny_folder(folder, seed=16, config={"eos_token_id": 258})
