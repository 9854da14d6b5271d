"""OpenTelemetry spans: what they say, whose children they are, and that they arrive."""

from pathlib import Path
from typing import Any

import pytest
from app.scripted import Threaded
from builders import Clock, call, choice, replica
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from serve.app.access_log import AccessLog
from serve.app.access_log_file import LogFile
from serve.app.journals import Journals, LogAndSpans, require_otel
from serve.app.spans import Parent, Spans, parent_of
from serve.core.calls import Account, Call, Verb
from serve.core.errors import CannotStart
from serve.proxy.journal import EndedCall, Journal
from serve.settings import Settings

NOON = 1907755200.0
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


class Origin:
    """A listener's side of a call."""

    def __init__(self, traceparent: str = "") -> None:
        self._account = Account("r-1", traceparent, "10.0.0.7:5123", 64, 128, 0.004)

    def account(self) -> Account:
        return self._account


def asked(traceparent: str = "", **more: Any) -> Call:
    one = call(**more)
    one.origin = Origin(traceparent)
    return one


def write(journal: Journal, one: Call, **more: Any) -> None:
    given = {"code": "200", "seconds": 0.25, "error": "", "tries": 1, "good": True, "key": ""}
    given |= more
    picked = given.pop("choice", choice())
    journal.write(EndedCall(one, picked, replica(), **given))


class Scene:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        processor = SimpleSpanProcessor(self._exporter)
        self.spans = Spans(processor, instance="worker-0", wall=Clock(NOON))

    def write(self, one: Call, **more: Any) -> None:
        write(self.spans, one, **more)

    def made(self) -> list[ReadableSpan]:
        return list(self._exporter.get_finished_spans())

    def written(self, one: Call, **more: Any) -> ReadableSpan:
        self.write(one, **more)
        (span,) = self.made()
        return span


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_call_becomes_a_server_span_with_the_times_that_it_had() -> None:
    span = Scene().written(asked(), key="abcde")
    assert (span.name, span.kind, span.parent) == ("infer m", SpanKind.SERVER, None)
    assert (span.start_time, span.end_time) == ((NOON - 0.25) * 1e9, NOON * 1e9)
    assert attributes(span) == {
        "client.address": "10.0.0.7",
        "http.request.body.size": 64,
        "http.response.body.size": 128,
        "http.response.status_code": 200,
        "servegate.protocol": "http",
        "servegate.verb": "infer",
        "servegate.model": "m",
        "servegate.version": "1",
        "servegate.route": "number",
        "servegate.generation": 0,
        "servegate.replica": "a",
        "servegate.tries": 1,
        "servegate.request_id": "r-1",
        "servegate.key": "abcde",
        "servegate.upstream_ms": 4,
    }
    assert span.resource.attributes["service.name"] == "servegate"
    assert span.resource.attributes["service.instance.id"] == "worker-0"


def test_a_grpc_call_says_so_in_the_words_of_rpc() -> None:
    said = attributes(Scene().written(asked(protocol="grpc"), code="NOT_FOUND", good=False))
    assert (said["rpc.system"], said["rpc.grpc.status_code"]) == ("grpc", 5)
    assert not any(name.startswith("http.") for name in said)


def test_a_span_is_the_child_of_the_callers_and_only_made_when_that_one_is() -> None:
    scene = Scene()
    scene.write(asked(f"00-{TRACE}-{SPAN}-01"))
    scene.write(asked(f"00-{TRACE}-{SPAN}-00"))
    (span,) = scene.made()
    assert span.parent is not None and span.parent.is_remote
    assert f"{span.context.trace_id:032x}" == TRACE
    assert f"{span.parent.span_id:016x}" == SPAN


def test_the_callers_span_is_read_also_of_later_versions_which_may_say_more() -> None:
    for flags, sampled in (("01", True), ("00", False), ("03", True)):
        assert parent_of(f"00-{TRACE}-{SPAN}-{flags}") == Parent(TRACE, SPAN, sampled)
    assert parent_of(f"cc-{TRACE}-{SPAN}-01-what-comes-then") == Parent(TRACE, SPAN, True)


def test_what_does_not_follow_the_form_of_w3c_names_no_caller() -> None:
    for text in (
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
    ):
        assert parent_of(text) is None, text


@pytest.mark.parametrize(
    ("protocol", "code", "error", "is_fault"),
    [
        ("http", "200", "", False),
        ("http", "404", "", False),
        ("http", "500", "", True),
        ("grpc", "INVALID_ARGUMENT", "", False),
        ("grpc", "INTERNAL", "", True),
        ("http", "unknown_model", "unknown_model", False),
        ("http", "client_left", "client_left", False),
        ("http", "no_replica", "no_replica", True),
        ("grpc", "outcome_unknown", "outcome_unknown", True),
    ],
)
def test_what_the_caller_did_wrong_is_no_error_of_the_span(
    protocol: str, code: str, error: str, is_fault: bool
) -> None:
    span = Scene().written(asked(protocol=protocol), code=code, error=error, good=False)
    assert (span.status.status_code is StatusCode.ERROR) == is_fault
    assert attributes(span).get("error.type", "") == error


def test_a_model_that_is_unknown_names_no_span() -> None:
    unknown = {"choice": None, "code": "unknown_model", "error": "unknown_model", "good": False}
    assert Scene().written(asked(model="made-up"), **unknown).name == "infer"


def test_every_call_is_a_span_while_the_log_takes_its_share(tmp_path: Path) -> None:
    scene = Scene()
    draws = iter([0.9, 0.001])
    path = tmp_path / "log"
    log = AccessLog(LogFile(path), share=0.01, draw=draws.__next__, clock=Clock(), wall=Clock())
    both = LogAndSpans(log, scene.spans)
    for _ in range(2):
        assert both.takes()
        write(both, asked())
    write(both, asked(verb=Verb.METADATA), good=False, code="500")
    log.close()
    assert len(scene.made()) == 3
    assert len(path.read_text().splitlines()) == 2


# --- what the settings ask for --------------------------------------------------------------------


def journals_of(**settings: str) -> Journals:
    made = Journals.of(
        Settings(access_log="", **settings),  # type: ignore[arg-type]
        instance="worker-0",
        draw=lambda: 0.5,
    )
    if made.journal is not None:
        write(made.journal, asked())
    return made


def test_spans_arrive_at_the_collector_when_a_worker_ends(threaded: Threaded) -> None:
    require_otel(Settings(otel=threaded.url))
    journals_of(otel=threaded.url).close()
    path, body = threaded.requests.get(timeout=10)
    (resource,) = ExportTraceServiceRequest.FromString(body).resource_spans
    names = [span.name for scope in resource.scope_spans for span in scope.spans]
    assert (path, names) == ("/v1/traces", ["infer m"])


def test_a_collector_that_is_away_holds_nobody_up_and_without_one_nothing_is_written() -> None:
    journals_of(otel="http://127.0.0.1:9").close()
    nothing = journals_of()
    assert nothing.journal is None
    nothing.close()


def test_without_the_extra_nothing_starts_that_wants_spans() -> None:
    def find(name: str) -> None:
        raise ModuleNotFoundError(name)

    require_otel(Settings(), find=find)
    for missing in (find, lambda name: None):
        with pytest.raises(CannotStart, match=r"pip install '\.\[otel\]'"):
            require_otel(Settings(otel="http://localhost:4318"), find=missing)


def test_an_endpoint_that_is_no_url_is_refused() -> None:
    require_otel(Settings())
    with pytest.raises(CannotStart, match="'localhost:4317' is not a valid OTLP endpoint"):
        require_otel(Settings(otel="localhost:4317"))
