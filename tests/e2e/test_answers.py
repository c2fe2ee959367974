"""A formed session answers at every member, through every interface."""

import json
import subprocess
import sys
import threading
import urllib.request
from typing import Any

from tests.e2e.conftest import NAMES, model_of, until
from tests.support.cluster import Cluster, ClusterMember
from tests.support.smollm2 import smollm2_folder

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
COUNT = [{"role": "user", "content": "Count from 1 to 200, with commas."}]
GREEDY = {"temperature": 0}
GREEDY_32 = {"temperature": 0, "num_predict": 32}

Session = dict[str, Any]


def test_session_when_ready_then_every_block_is_on_one_stage_and_every_member_has_one(session: Session) -> None:
    stages = session["stages"]
    assert [stage.get("start", 0) for stage in stages] == [0, *(stage["end"] for stage in stages[:-1])]
    assert stages[-1]["end"] == 30
    assert {stage["member"] for stage in stages} == set(NAMES)
    assert [stage.get("head", False) for stage in stages] == [True, False, False]
    assert all(hop["path"] == "direct" for hop in session["hops"])


def test_chat_when_asked_at_any_member_then_it_says_paris(member: ClusterMember, session: Session) -> None:
    body = {"model": model_of(session), "messages": QUESTION, "stream": False, "options": GREEDY}
    status, answer = member.request("/api/chat", body)
    assert (status, answer["done_reason"]) == (200, "stop")
    assert "Paris" in answer["message"]["content"]
    assert answer["prompt_eval_count"] > 20
    assert answer["eval_count"] >= 8


def test_chat_when_streamed_then_chunks_add_up_to_the_same_answer(member: ClusterMember, session: Session) -> None:
    body = {"model": model_of(session), "messages": QUESTION, "options": GREEDY}
    status, lines = member.request("/api/chat", body)
    assert status == 200
    assert len(lines) > 3
    assert "".join(line["message"]["content"] for line in lines) == "The capital of France is Paris."
    assert lines[-1]["done"]


REFERENCE = """
import json, sys
from kafila_sidecar.runtime.mlx_thread import prefer_openblas
prefer_openblas()
from mlx_lm import load, stream_generate
from mlx_lm.sample_utils import make_sampler
model, tokenizer = load(sys.argv[1])
for question in sys.argv[2:]:
    prompt = tokenizer.apply_chat_template([{"role": "user", "content": question}], add_generation_prompt=True)
    greedy = stream_generate(model, tokenizer, prompt, max_tokens=32, sampler=make_sampler(temp=0.0))
    print(json.dumps("".join(reply.text for reply in greedy)), flush=True)
"""


def test_answers_when_the_model_is_split_over_three_machines_then_they_are_those_of_one(
    cluster: Cluster, session: Session
) -> None:
    questions = ["Why is the sky blue?", "Tell me a story about a lighthouse."]
    command = [sys.executable, "-c", REFERENCE, str(smollm2_folder()), *questions]
    whole = subprocess.run(command, capture_output=True, text=True, timeout=110, check=True).stdout
    for question, expected in zip(questions, map(json.loads, whole.splitlines()), strict=True):
        messages = [{"role": "user", "content": question}]
        body = {"model": model_of(session), "messages": messages, "stream": False, "options": GREEDY_32}
        assert cluster.members[1].request("/api/chat", body)[1]["message"]["content"] == expected


def test_generate_when_asked_raw_then_the_text_is_continued(member: ClusterMember, session: Session) -> None:
    body = {"model": model_of(session), "prompt": "Once upon a", "raw": True, "stream": False}
    status, answer = member.request("/api/generate", body | {"options": {**GREEDY, "num_predict": 5}})
    assert (status, answer["done_reason"], answer["eval_count"]) == (200, "length", 5)
    assert answer["response"].startswith(" time")


def test_generate_when_streamed_then_it_ends_with_done(member: ClusterMember, session: Session) -> None:
    body = {"model": model_of(session), "prompt": "What is the capital of France?", "options": GREEDY}
    status, lines = member.request("/api/generate", body)
    assert status == 200
    assert "Paris" in "".join(line["response"] for line in lines)
    assert lines[-1]["done"]


def test_openai_chat_when_asked_then_it_says_paris(member: ClusterMember, session: Session) -> None:
    body = {"model": model_of(session), "messages": QUESTION, "temperature": 0}
    status, answer = member.request("/v1/chat/completions", body)
    assert status == 200
    assert "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] >= 8


def test_lists_when_a_session_is_ready_then_its_model_is_an_ordinary_one(
    member: ClusterMember, session: Session
) -> None:
    name = model_of(session)
    assert name in [model["name"] for model in member.request("/api/tags")[1]["models"]]
    assert name in [model["name"] for model in member.request("/api/ps")[1]["models"]]
    status, shown = member.request("/api/show", {"model": name})
    assert status == 200
    assert shown["details"]["quantization_level"] or shown["model_info"]
    assert name in member.ollama("list").stdout


def test_stop_when_a_stop_string_comes_then_the_answer_ends_before_it(member: ClusterMember, session: Session) -> None:
    options = {**GREEDY, "stop": ["France"]}
    body = {"model": model_of(session), "messages": QUESTION, "stream": False, "options": options}
    _, answer = member.request("/api/chat", body)
    assert answer["message"]["content"] == "The capital of "


def test_seed_when_the_same_then_the_sampled_answer_is_the_same(member: ClusterMember, session: Session) -> None:
    options = {"temperature": 1.5, "seed": 11, "num_predict": 12, "top_k": 0, "top_p": 1.0}
    body = {"model": model_of(session), "messages": QUESTION, "stream": False, "options": options}
    first, second = (member.request("/api/chat", body)[1]["message"]["content"] for _ in range(2))
    other = member.request("/api/chat", body | {"options": options | {"seed": 12}})[1]["message"]["content"]
    assert first == second != other


def test_two_prompts_when_at_once_then_both_answer(cluster: Cluster, session: Session) -> None:
    answers: dict[str, str] = {}

    def ask(member: ClusterMember, content: str) -> None:
        body = {"model": model_of(session), "messages": [{"role": "user", "content": content}], "options": GREEDY}
        answers[member.name] = member.request("/api/chat", body | {"stream": False})[1]["message"]["content"]

    questions = ("What is the capital of France?", "What is the capital of Japan?")
    threads = [threading.Thread(target=ask, args=pair) for pair in zip(cluster.members[1:], questions, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert "Paris" in answers["bob"]
    assert "Tokyo" in answers["cyd"]


def test_client_when_it_goes_away_then_every_stage_frees_the_sequence(
    member: ClusterMember, cluster: Cluster, session: Session
) -> None:
    body = {"model": model_of(session), "messages": COUNT, "options": {**GREEDY, "num_predict": 800}}
    call = urllib.request.Request(
        f"{member.url}/api/chat", json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(call, timeout=30) as answer:
        for _ in range(3):
            answer.readline()
        assert all(one.session().get("active_sequences") == 1 for one in cluster.members)
    until(lambda: not any(one.session().get("active_sequences") for one in cluster.members), 1.0, 0.02)


def test_prompt_when_longer_than_the_context_then_truncate_false_is_refused(
    member: ClusterMember, session: Session
) -> None:
    body = {"model": model_of(session), "prompt": "word " * 3000, "truncate": False, "stream": False}
    status, answer = member.request("/api/generate", body)
    assert (status, answer["error"]) == (400, "the input length exceeds the context length")


def test_run_when_already_a_member_then_it_answers_without_asking(member: ClusterMember, session: Session) -> None:
    done = member.ollama("run", "--session", member.session()["code"], "What is the capital of France?")
    assert done.returncode == 0, done.stderr
    assert "Paris" in done.stdout


def test_status_when_an_answer_was_given_then_every_member_shows_measured_times(
    member: ClusterMember, session: Session
) -> None:
    until(lambda: all(stage.get("measured_s") for stage in member.session()["stages"]), 5)
    shown = member.ollama("session", "status")
    assert shown.returncode == 0
    for name in NAMES:
        assert name in shown.stdout
