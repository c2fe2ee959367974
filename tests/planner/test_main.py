"""`kafila-plan`: exit status, standard output, standard error."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafila_planner import PLANNER_VERSION
from kafila_planner.__main__ import main
from tests.planner.problems import GB, Json, member, problem

FIELDS = {
    "admitted",
    "tier",
    "ordered_by",
    "search",
    "head",
    "order",
    "stages",
    "hops",
    "relayed_hops",
    "ring_cost_s",
    "bottleneck_s",
    "compute_s",
    "network_s",
    "circuit_s",
    "imbalance",
    "utilisation",
    "tokens_per_s",
    "tokens_per_s_one_user",
    "ttft_s",
    "idle",
}
"""What the interface promises."""


def run(given: object, tmp_path: Path) -> int:
    file = tmp_path / "problem.json"
    file.write_text(given if isinstance(given, str) else json.dumps(given))
    return main([str(file)])


def test_main_when_admitted_then_plan_and_zero(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(problem([member("A"), member("B")]), tmp_path) == 0
    out, err = capsys.readouterr()
    told: Json = json.loads(out)
    assert told.keys() >= FIELDS
    assert told["stages"][0].keys() == {"member", "start", "end", "cost_s", "resident_bytes", "limit_blocks"}
    assert told["hops"][0].keys() == {"from", "to", "path", "cost_s"}
    assert err == ""


def test_main_when_not_admitted_then_json_and_three(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(problem([member("A", memory_bytes=GB)]), tmp_path) == 3
    assert json.loads(capsys.readouterr().out)["admitted"] is False


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (problem([member("A", rtt_s=-1)]), "rtt_s"),
        ("{", "JSON"),
        ("", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"members": [{"name": "A", "rtt_s": NaN}]}', "rtt_s"),
        ('{"members": [{"name": "A", "rtt_s": 1' + "0" * 5000 + "}]}", "'A': rtt_s"),
        (problem([member("A", rtt_s=1e18)]), "between 1e-12 and 1e+06"),
        (problem([{**member("desk"), "foo": 1}]), "'desk'"),
        (problem([member(str(n)) for n in range(65)]), "not of 65"),
        (problem([member("A", udp=None, mapping=[True, None])]), "not [true, null]"),
    ],
)
def test_main_when_bad_input_then_two_and_one_sentence_and_no_output(
    given: object, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(given, tmp_path) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert named in err
    assert err.count("\n") == 1


def test_main_when_the_file_is_missing_or_not_text_then_two(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.json")]) == 2
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    assert main([str(tmp_path / "bytes")]) == 2
    assert capsys.readouterr().out == ""


def test_main_when_no_file_is_given_then_standard_input(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(problem([member("A")]))))
    assert main([]) == 0
    assert json.loads(capsys.readouterr().out)["head"] == "A"


def test_python_m_planner_when_run_then_it_plans_without_the_sidecar() -> None:
    given = json.dumps(problem([member("A")]))
    done = subprocess.run(
        [sys.executable, "-m", "kafila_planner"], input=given, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["admitted"] is True


def test_python_m_planner_when_hash_seeds_differ_then_the_plan_is_the_same_to_the_last_byte() -> None:
    """Members compare plans: nothing may hang on the order of a set."""
    crowd = [member(f"m{n}", memory_bytes=7 * GB, rtt_s=0.001 * (1 + n % 3)) for n in range(6)]
    given = json.dumps(problem(crowd, objective="throughput", concurrency=4))
    told = {
        subprocess.run(
            [sys.executable, "-m", "kafila_planner"],
            input=given,
            capture_output=True,
            text=True,
            timeout=60,
            env=os.environ | {"PYTHONHASHSEED": seed},
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


def test_documented_example_when_run_then_it_says_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "planner.md").read_text()
    assert run(page.split("<<'END'\n")[1].split("\nEND")[0], tmp_path) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(told["order"]) == ["desk", "lab"]
    assert [one["member"] for one in told["idle"]] == ["laptop"]
    assert told["idle"][0]["tokens_per_s_with"] < told["tokens_per_s"]


def test_main_when_standard_input_is_closed_then_two_and_a_sentence() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kafila_planner"],
        stdin=None,
        capture_output=True,
        text=True,
        check=False,
        close_fds=True,
        preexec_fn=lambda: os.close(0),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "standard input is closed" in done.stderr


def test_main_when_asked_for_its_version_then_the_package_and_the_planner(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert re.fullmatch(rf"kafila-plan \S.*, planner {PLANNER_VERSION}\n", capsys.readouterr().out)


def test_main_when_asked_for_help_then_units_exit_status_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    for word in ("bytes", "seconds", "exit status", "example", "docs/planner.md"):
        assert word in told
    example = told[told.index("{") : told.rindex("}") + 1]
    assert json.loads(example)["members"]
