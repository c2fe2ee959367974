"""The environment, read as the Hub's own tools read it."""

from pathlib import Path

import pytest

from kafila_sidecar.errors import InvalidInput
from kafila_sidecar.weights.providers.settings import HubSettings, read_settings

HOME = "/home/anna"
CACHES: dict[str, tuple[dict[str, str], str]] = {
    "nothing": ({}, f"{HOME}/.cache/huggingface/hub"),
    "XDG": ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
    "home of the Hub": ({"HF_HOME": "~/hf", "XDG_CACHE_HOME": "/x"}, f"{HOME}/hf/hub"),
    "cache of the Hub": ({"HF_HOME": "/h", "HF_HUB_CACHE": "/c"}, "/c"),
    "its older name": ({"HUGGINGFACE_HUB_CACHE": "~/c"}, f"{HOME}/c"),
}


@pytest.mark.parametrize("name", CACHES)
def test_cache_when_the_environment_names_one_then_it_is_the_librarys_own(name: str) -> None:
    environment, wanted = CACHES[name]
    assert read_settings({"HOME": HOME} | environment).cache == Path(wanted)


TOKENS: dict[str, tuple[dict[str, str], str, str | None]] = {
    "nowhere": ({}, "", None),
    "variable": ({"HF_TOKEN": "hf_a"}, "hf_file", "hf_a"),
    "variable with a stray line end": ({"HF_TOKEN": " hf_a\r\n"}, "", "hf_a"),
    "older variable": ({"HUGGING_FACE_HUB_TOKEN": "hf_b"}, "", "hf_b"),
    "file": ({}, "hf_file\n", "hf_file"),
    "empty variable, file": ({"HF_TOKEN": ""}, "hf_file", "hf_file"),
    "turned off": ({"HF_TOKEN": "hf_a", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, "hf_file", None),
}


@pytest.mark.parametrize("name", TOKENS)
def test_token_when_it_lies_where_the_hubs_tools_look_then_it_is_found(name: str, tmp_path: Path) -> None:
    environment, file, wanted = TOKENS[name]
    if file:
        (tmp_path / "token").write_text(file)
    settings = read_settings({"HF_HOME": str(tmp_path)} | environment)
    assert settings.token == wanted
    assert settings.problem == ""
    assert "hf_" not in repr(settings)


def test_token_when_its_file_is_named_then_it_is_read_there(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("hf_c\n")
    assert read_settings({"HF_TOKEN_PATH": str(tmp_path / "elsewhere")}).token == "hf_c"


@pytest.mark.parametrize("token", ["hf_a b", "hf_\x00", "hf_ü"])
def test_token_when_it_can_not_be_one_then_refused_when_needed_without_showing_it(token: str) -> None:
    settings = read_settings({"HF_TOKEN": token})
    with pytest.raises(InvalidInput, match="HF_TOKEN") as refused:
        settings.hub()
    assert token not in str(refused.value)


@pytest.mark.parametrize("endpoint", ["ftp://x", "hub.example", "https://me:pw@hub.example", "https://a b"])
def test_endpoint_when_it_is_no_address_then_refused_when_needed(endpoint: str) -> None:
    with pytest.raises(InvalidInput, match="HF_ENDPOINT"):
        read_settings({"HF_ENDPOINT": endpoint}).hub()


def test_settings_when_nothing_is_set_then_the_hub_is_asked_without_a_token(tmp_path: Path) -> None:
    settings = read_settings({"HF_HOME": str(tmp_path)})
    assert settings == HubSettings(cache=tmp_path / "hub")
    assert settings.hub().endpoint == "https://huggingface.co"


def test_settings_when_roots_or_offline_are_set_then_read() -> None:
    settings = read_settings({"SSL_CERT_FILE": "/roots.pem", "HF_HUB_OFFLINE": "YES", "HF_ENDPOINT": "http://h/ "})
    assert (settings.certificates, settings.offline, settings.endpoint) == (Path("/roots.pem"), True, "http://h")
