"""What is written of calls that have ended: lines of the access log, and OpenTelemetry's spans."""

import json
import os
import random
from collections.abc import Callable, Iterator
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

from serve.app.access_log import MOST, AccessLog
from serve.app.access_log_file import LogFile
from serve.app.journals import Journals, LogAndSpans, require_otel
from serve.app.spans import Parent, Spans, parent_of
from serve.core.calls import Account, Call, Verb
from serve.core.errors import CannotStart
from serve.proxy.journal import EndedCall
from serve.settings import Settings

NOON = 1907755200.0  # seconds of the epoch: 2030-06-15
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
UNKNOWN = {"choice": None, "code": "unknown_model", "error": "unknown_model", "good": False}


class Origin:
    """A listener's side of a call."""

    def __init__(self, traceparent: str) -> None:
        self._account = Account("r-1", traceparent, "10.0.0.7:5123", 64, 128, 0.004)

    def account(self) -> Account:
        return self._account


def asked(traceparent: str = "", **more: Any) -> Call:
    one = call(**more)
    one.origin = Origin(traceparent)
    return one


def ended(one: Call, **more: Any) -> EndedCall:
    given = {"code": "200", "seconds": 0.25, "error": "", "tries": 1, "good": True, "key": ""}
    given |= more
    return EndedCall(one, given.pop("choice", choice()), replica(), **given)


# --- the access log -------------------------------------------------------------------------------


class Log:
    """A log of one per cent of the good calls."""

    def __init__(self, path: Path, draw: Callable[[], float] = lambda: 0.5) -> None:
        self.path = path
        self.clock = Clock()
        self.log = AccessLog(
            LogFile(path), share=0.01, draw=draw, clock=self.clock, wall=Clock(NOON)
        )

    def write(self, one: Call | None = None, **more: Any) -> None:
        self.log.write(ended(one or call(), **more))

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def dropped(self) -> float:
        (family,) = self.log.collect()
        return family.samples[0].value


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Log]:
    one = Log(tmp_path / "access.log")
    yield one
    one.log.close()


def test_a_line_says_what_became_of_a_call(scene: Log) -> None:
    one = asked(f"00-{TRACE}-{SPAN}-01", protocol="grpc", model="m", selector="1")
    one.credential = b"Bearer sg_abcde_not-to-be-seen-anywhere"
    scene.write(one, code="OK", seconds=0.0051234567, key="abcde")
    assert scene.lines() == [
        {
            "time": "2030-06-15T12:00:00.000Z",
            "protocol": "grpc",
            "verb": "infer",
            "model": "m",
            "version": "1",
            "by": "number",
            "generation": 0,
            "replica": "a",
            "tries": 1,
            "code": "OK",
            "error": "",
            "received": 64,
            "answered": 128,
            "seconds": 0.005123,
            "upstream_seconds": 0.004,
            "added_seconds": 0.001123,
            "request_id": "r-1",
            "trace_id": TRACE,
            "key": "abcde",
            "peer": "10.0.0.7:5123",
        }
    ]
    assert "not-to-be-seen" not in scene.path.read_text()


def test_an_error_of_ours_takes_the_place_of_a_status(scene: Log) -> None:
    scene.write(call(Verb.METADATA, model='no"such\nmodel\ud800'), **UNKNOWN)
    (line,) = scene.lines()
    assert (line["code"], line["error"], line["version"]) == ("", "unknown_model", "")
    assert line["model"] == 'no"such\nmodel\ud800'
    assert line["upstream_seconds"] is None and line["added_seconds"] is None


def test_good_calls_are_taken_by_their_share(tmp_path: Path) -> None:
    log = Log(tmp_path / "log", random.Random(7).random).log
    assert 70 < sum(log.takes() for _ in range(10_000)) < 130


def test_a_storm_of_failed_calls_is_cut_and_counted(scene: Log) -> None:
    for _ in range(MOST + 50):
        scene.write(good=False, code="500")
    assert (len(scene.lines()), scene.dropped()) == (MOST, 50)
    scene.clock.now += 1.0
    scene.write(good=False, code="500")
    assert (len(scene.lines()), scene.dropped()) == (MOST + 1, 50)


# --- the file -------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_flush_and_all_of_it_at_the_end(scene: Log) -> None:
    scene.write()
    assert not scene.path.exists()
    scene.log.close()
    assert len(scene.path.read_text().splitlines()) == 1


def test_several_workers_append_to_one_file_which_is_made_anew_when_it_was_rotated_away(
    scene: Log, tmp_path: Path
) -> None:
    another = Log(scene.path)
    for code, rotated in (("200", "access.log.1"), ("201", "access.log.2")):
        for one in (scene, another, scene, another):
            one.write(code=code)
            one.log.flush()
        assert [line["code"] for line in scene.lines()] == [code] * 4
        scene.path.rename(tmp_path / rotated)
    another.log.close()


def test_a_file_that_cannot_be_written_is_one_warning_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "servegate")
    folder = tmp_path / "later"
    scene = Log(folder / "access.log")
    for _ in range(3):
        scene.write()
        scene.log.flush()
    assert scene.dropped() == 3
    assert len(caplog.messages) == 1 and "cannot write to" in caplog.messages[0]
    folder.mkdir()
    scene.write()
    assert len(scene.lines()) == 1
    assert caplog.messages[1:] == [f"the access log <LogFile {scene.path}> is writable again"]
    scene.log.close()


def test_a_full_disk_loses_lines_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    scene = Log(Path("/dev/full"))
    scene.write()
    scene.log.flush()
    assert scene.dropped() == 1
    assert "No space left on device" in caplog.text
    scene.log.close()


def test_a_pipe_that_nobody_reads_does_not_hold_anybody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    scene = Log(path)
    for _ in range(30):
        for _ in range(20):
            scene.write()
        scene.clock.now += 1
        scene.log.flush()
    assert scene.dropped() > 0 and len(caplog.messages) == 1
    taken = os.read(reader, 1 << 20)
    scene.write(code="201")
    scene.log.flush()
    whole = [json.loads(line) for line in taken.splitlines()[:-1]]
    assert len(whole) > 100
    last = os.read(reader, 1 << 20).splitlines()[-1]
    assert json.loads(last)["code"] == "201"  # on a line of its own
    os.close(reader)
    scene.log.close()


# --- spans ----------------------------------------------------------------------------------------


class Scene:
    """Spans that end in memory."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        processor = SimpleSpanProcessor(self._exporter)
        self.spans = Spans(processor, instance="worker-0", wall=Clock(NOON))

    def write(self, one: Call, **more: Any) -> None:
        self.spans.write(ended(one, **more))

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
    assert Scene().written(asked(model="made-up"), **UNKNOWN).name == "infer"


def test_every_call_is_a_span_while_the_log_takes_its_share(tmp_path: Path) -> None:
    scene = Scene()
    draws = iter([0.9, 0.001])
    path = tmp_path / "log"
    log = AccessLog(LogFile(path), share=0.01, draw=draws.__next__, clock=Clock(), wall=Clock())
    both = LogAndSpans(log, scene.spans)
    for _ in range(2):
        assert both.takes()
        both.write(ended(asked()))
    both.write(ended(asked(verb=Verb.METADATA), good=False, code="500"))
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
        made.journal.write(ended(asked()))
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
