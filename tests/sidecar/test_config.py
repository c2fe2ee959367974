"""What a sidecar is told by its environment and its folder."""

from pathlib import Path

import pytest

from kafila_sidecar.config import Config
from kafila_sidecar.errors import InvalidInput

KEPT = "192.0.2.7:7770#mcwqzspzi5esea64axpg"


def config(data: Path, **environment: str) -> Config:
    return Config.read(environment, socket_path=data / "socket", data=data)


def test_meeting_place_when_one_is_kept_while_it_runs_then_it_counts_at_once(tmp_path: Path) -> None:
    running = config(tmp_path)
    assert running.meeting_place() == ""
    (tmp_path / "rendezvous.address").write_text(f"{KEPT}\n")
    assert running.meeting_place() == KEPT
    (tmp_path / "rendezvous.address").unlink()
    assert running.meeting_place() == ""


def test_meeting_place_when_the_variable_is_set_then_it_goes_before_what_is_kept(tmp_path: Path) -> None:
    (tmp_path / "rendezvous.address").write_text(f"{KEPT}\n")
    assert config(tmp_path, KAFILA_RENDEZVOUS="192.0.2.8:1").meeting_place() == "192.0.2.8:1"


def test_meeting_place_when_it_cant_be_read_then_one_sentence_says_so(tmp_path: Path) -> None:
    (tmp_path / "rendezvous.address").mkdir()
    with pytest.raises(InvalidInput, match="can't be read"):
        config(tmp_path).meeting_place()


def test_meeting_place_when_what_is_kept_is_cut_short_then_half_an_address_is_none(tmp_path: Path) -> None:
    (tmp_path / "rendezvous.address").write_text(KEPT.partition("#")[0])
    with pytest.raises(InvalidInput, match="cut short"):
        config(tmp_path).meeting_place()
