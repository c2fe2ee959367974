"""Requests as OpenTelemetry spans, where whoever runs this machine named an endpoint; otherwise nothing leaves it.

One span a request, a child for each stage: how long its machine computed for this request while decoding, from the
first token on. Clocks of other machines are not needed: all is laid on the head's.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from kafila_sidecar.errors import Refused

SERVICE = "kafila"
_NUMBERS = ("prompt_tokens", "output_tokens", "replays", "queue_s", "ttft_s", "prefill_s", "decode_s", "network_share")


class Tracing(Protocol):
    """Hears of every request that was served here."""

    def request_ended(self, record: Mapping[str, Any], *, session: str, ended_at: float) -> None:
        """`record`: see `serving.trace`; `ended_at`: seconds since 1970."""

    def close(self) -> None:
        """Sends what has not gone out, if there is anywhere to."""


class NoTracing:
    """No endpoint was named."""

    def request_ended(self, record: Mapping[str, Any], *, session: str, ended_at: float) -> None:
        pass

    def close(self) -> None:
        pass


class Spans:
    """Told to a tracer provider of OpenTelemetry's SDK, which sends them from a thread of its own."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer(SERVICE)

    def request_ended(self, record: Mapping[str, Any], *, session: str, ended_at: float) -> None:
        from opentelemetry.trace import set_span_in_context

        began_at = ended_at - _took_s(record)
        request = self._tracer.start_span("request", start_time=_ns(began_at), attributes=_about(record, session))
        within = set_span_in_context(request)
        first_at = ended_at - record["decode_s"]
        for stage in record["stages"]:
            took_s = min(record["decode_s"], stage["measured_s"] * max(0, record["output_tokens"] - 1))
            span = self._tracer.start_span(
                "stage",
                context=within,
                start_time=_ns(first_at),
                attributes={f"kafila.{k}": v for k, v in stage.items()},
            )
            span.end(_ns(first_at + took_s))
        request.end(_ns(ended_at))

    def close(self) -> None:
        self._provider.shutdown()


def tracing(*, wanted: bool) -> Tracing:
    """To the endpoint that OpenTelemetry's own variables name, which its SDK reads.

    Raises: Refused where the SDK is not installed, which `kafila[trace]` brings.
    """
    if not wanted:
        return NoTracing()
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        raise Refused(
            "traces are to be sent to an OpenTelemetry endpoint, but its SDK is not installed: run"
            " `pip install 'kafila[trace]'`, or unset OTEL_EXPORTER_OTLP_ENDPOINT"
        ) from error
    provider = TracerProvider(resource=Resource.create({"service.name": SERVICE}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(timeout=5)))
    return Spans(provider)


def _about(record: Mapping[str, Any], session: str) -> Mapping[str, Any]:
    numbers = {f"kafila.{name}": record[name] for name in _NUMBERS}
    return {"kafila.session": session, "kafila.request": record["request"], "kafila.ended": record["ended"], **numbers}


def _took_s(record: Mapping[str, Any]) -> float:
    total: float = record["queue_s"] + record["prefill_s"] + record["decode_s"]
    return total


def _ns(at: float) -> int:
    return int(at * 1e9)
