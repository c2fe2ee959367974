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


@pytest.fixture(scope="session")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with blocks that see no more than a window, whose caches can't forget."""
    from tests.support.tiny import tiny_folder

    kinds = ["full_attention", "sliding_attention"] * 3
    config = {"eos_token_id": 258, "sliding_window": 16, "layer_types": kinds}
    return tiny_folder(tmp_path_factory.mktemp("windowed") / "model", seed=16, config=config)
