"""Embeddings and long answers of a formed session, at every member, through every interface."""

from math import dist, hypot
from typing import Any

import pytest

from tests.e2e.conftest import model_of
from tests.support.cluster import Cluster, ClusterMember

TEXTS = ["A caravan crosses the desert.", "Camels walk through the sand.", "The stock market fell by two percent."]
WIDTH = 576

Session = dict[str, Any]


def embed(member: ClusterMember, session: Session, **body: Any) -> dict[str, Any]:
    status, answer = member.request("/api/embed", {"model": model_of(session), **body})
    assert status == 200, answer
    return dict(answer)


def test_embeddings_when_asked_in_every_way_then_the_same_and_of_length_one(
    member: ClusterMember, cluster: Cluster, session: Session
) -> None:
    told = embed(member, session, input=TEXTS)
    vectors = told["embeddings"]
    assert [len(one) for one in vectors] == [WIDTH] * 3
    assert [hypot(*one) for one in vectors] == pytest.approx([1.0] * 3, abs=1e-5)
    assert told["prompt_eval_count"] > 12
    assert dist(vectors[0], vectors[1]) < dist(vectors[0], vectors[2])
    at_head = embed(cluster.members[0], session, input=TEXTS[1])["embeddings"][0]
    assert dist(at_head, vectors[1]) < 1e-4
    short = embed(member, session, input=TEXTS[0], dimensions=64)["embeddings"][0]
    assert len(short) == 64
    assert hypot(*short) == pytest.approx(1.0, abs=1e-5)
    status, old = member.request("/api/embeddings", {"model": model_of(session), "prompt": TEXTS[0]})
    assert status == 200
    assert dist(old["embedding"], vectors[0]) < 1e-4
    status, openai = member.request("/v1/embeddings", {"model": model_of(session), "input": TEXTS})
    assert status == 200
    assert all(dist(one["embedding"], vector) < 1e-4 for one, vector in zip(openai["data"], vectors, strict=True))


def test_embeddings_when_a_text_is_too_long_then_of_its_beginning_or_refused_as_by_stock(
    member: ClusterMember, session: Session
) -> None:
    long = "a long story " * 60
    told = embed(member, session, input=long, options={"num_ctx": 64})
    assert told["prompt_eval_count"] == 64
    body = {"model": model_of(session), "input": long, "options": {"num_ctx": 64}, "truncate": False}
    status, answer = member.request("/api/embed", body)
    assert (status, answer["error"]) == (400, "the input length exceeds the context length")
    status, answer = member.request("/api/embed", {"model": model_of(session), "input": [""]})
    assert status >= 400
    assert "empty" in answer["error"]


def test_generate_when_the_answer_is_longer_than_the_context_then_it_goes_on_unless_it_may_not_shift(
    member: ClusterMember, session: Session
) -> None:
    body = {"model": model_of(session), "prompt": "One, two, three, four,", "raw": True, "stream": False}
    options = {"temperature": 0, "num_ctx": 40, "num_predict": 100}
    status, answer = member.request("/api/generate", body | {"options": options})
    assert (status, answer["eval_count"], answer["done_reason"]) == (200, 100, "length")
    status, answer = member.request("/api/generate", body | {"options": options, "shift": False})
    assert (status, answer["done_reason"]) == (200, "length")
    assert answer["prompt_eval_count"] + answer["eval_count"] == 40
