"""A tiny model for whoever needs one; MLX runs in this process, on the BLAS that the product takes."""

import pytest

from sidecar.runtime.mlx_thread import prefer_openblas

prefer_openblas()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> "object":
    """A folder with a random llama of six blocks that says no end of its own."""
    from tests.support.tiny import tiny_folder

    folder = tmp_path_factory.mktemp("tiny") / "model"
    return tiny_folder(folder, config={"eos_token_id": 258})
