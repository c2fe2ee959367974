"""What OpenTelemetry is told, and that it is told nothing unless somebody asked for it."""

import gzip
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from kafila_sidecar.config import SPAN_VARIABLES, Config
from kafila_sidecar.errors import Refused
from kafila_sidecar.numbers.spans import NoTracing, Spans, tracing
from tests.support.told_numbers import record


def test_spans_when_a_request_ended_then_it_is_one_with_a_child_for_each_stage() -> None:
    told = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(told))
    spans = Spans(provider)
    spans.request_ended(record(), session="5e55", ended_at=1000.0)
    spans.close()
    *stages, request = told.get_finished_spans()
    assert (request.name, request.start_time, request.end_time) == ("request", 996_000_000_000, 1_000_000_000_000)
    assert [one.attributes["kafila.member"] for one in stages if one.attributes] == ["anna", "mini"]
    assert all(one.parent is not None and one.parent.span_id == request.context.span_id for one in stages)
    assert [(one.start_time, one.end_time) for one in stages] == [
        (998_000_000_000, 999_000_000_000),
        (998_000_000_000, 998_600_000_000),
    ]


def read(environment: dict[str, str]) -> Config:
    return Config.read(environment, socket_path=Path("s"), data=Path("d"))


def test_tracing_when_no_endpoint_is_named_then_nothing_is_told_and_no_sdk_is_imported() -> None:
    before = set(sys.modules)
    told = tracing(wanted=read({"OTEL_SERVICE_NAME": "x"}).spans)
    told.request_ended(record(), session="5e55", ended_at=1000.0)
    told.close()
    assert isinstance(told, NoTracing)
    assert not [name for name in set(sys.modules) - before if name.startswith("opentelemetry")]


@pytest.mark.parametrize("variable", SPAN_VARIABLES)
def test_config_when_an_endpoint_is_named_then_spans_are_wanted(variable: str) -> None:
    assert read({variable: "http://127.0.0.1:4318"}).spans
    assert not read({variable: ""}).spans


def test_tracing_when_the_sdk_is_missing_then_says_what_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(Refused, match=r"kafila\[trace\]"):
        tracing(wanted=True)


class SpanCollector(BaseHTTPRequestHandler):
    """Takes what is posted to it."""

    posted: ClassVar[list[tuple[str, bytes]]] = []

    def do_POST(self) -> None:
        self.posted.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *_: object) -> None:
        pass


def test_tracing_when_an_endpoint_is_named_then_it_gets_the_request_before_the_sidecar_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with HTTPServer(("127.0.0.1", 0), SpanCollector) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        told = tracing(wanted=True)
        told.request_ended(record(), session="5e55", ended_at=1000.0)
        told.close()
        server.shutdown()
        thread.join()
    ((path, body),) = SpanCollector.posted
    assert path == "/v1/traces"
    assert b"kafila.member" in gzip_or_plain(body)


def gzip_or_plain(body: bytes) -> bytes:
    return gzip.decompress(body) if body.startswith(b"\x1f\x8b") else body
