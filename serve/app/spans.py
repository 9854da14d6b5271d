"""OpenTelemetry: a server span for each call, made of what the access log would say of it.

Needs the extra `servegate[otel]`, so it is imported by `journals` alone, when that is asked for. A
span is made once its call is over, with the times that it had, and handed to a thread that sends
batches: calls never wait for the collector, and when it is away
spans are lost, not calls. Whether a call is sampled is said by its `traceparent`; for calls without
one by the SDK's own variables (`OTEL_TRACES_SAMPLER`), which sample all by default.

Attributes follow OpenTelemetry's semantic conventions for HTTP and RPC servers where these have a
name for it; the others begin with `servegate.`.

`traceparent`: the trace that a call belongs to; see W3C Trace Context, 3.2.
"""

import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

from serve import __version__
from serve.core.calls import Account
from serve.core.errors import (
    DeadlineExceeded,
    OutcomeUnknown,
    ServegateError,
    Unavailable,
)
from serve.proxy.journal import EndedCall
from serve.wire.status import GRPC_NAMES

# --- `traceparent` --------------------------------------------------------------------------------


_FORM = re.compile(r"(?!ff)[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?")
_SAMPLED = 1  # the lowest bit of the flags
_ABSENT = {"0" * 32, "0" * 16}


@dataclass(frozen=True, slots=True)
class Parent:
    """The caller's span, in hexadecimal digits; `is_sampled` says whether the caller records it."""

    trace: str
    span: str
    is_sampled: bool


def parent_of(traceparent: str) -> Parent | None:
    """What the header says; None when it says nothing that can be used."""
    match = _FORM.fullmatch(traceparent.strip())
    if match is None or match[1] in _ABSENT or match[2] in _ABSENT:
        return None
    if traceparent.strip().startswith("00-") and match.end(3) != match.end():
        return None  # version 00 ends there; later ones may say more
    return Parent(match[1], match[2], bool(int(match[3], 16) & _SAMPLED))


# --- openTelemetry --------------------------------------------------------------------------------


Attributes = dict[str, str | int]

_LAST_WORDS = 1.0  # seconds in which the last batch has to be sent
_NANOSECONDS = 1_000_000_000
_GRPC_NUMBERS = {name: number for number, name in enumerate(GRPC_NAMES)}
_SERVER_FAULTS = {  # of gRPC, by the conventions for server spans
    "UNKNOWN",
    "DEADLINE_EXCEEDED",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
}


def _codes(kind: type[ServegateError]) -> Iterator[str]:
    yield kind.code
    for narrower in kind.__subclasses__():
        yield from _codes(narrower)


_OUR_FAULTS = {ServegateError.code, DeadlineExceeded.code, OutcomeUnknown.code} | set(
    _codes(Unavailable)
)


class Spans:
    """One process' spans; see `proxy.journal.Journal`. `wall` is seconds of the epoch."""

    def __init__(
        self, processor: SpanProcessor, *, instance: str, wall: Callable[[], float]
    ) -> None:
        about = {"service.version": __version__, "service.instance.id": instance}
        if "OTEL_SERVICE_NAME" not in os.environ:
            about["service.name"] = "servegate"
        self._provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("servegate", __version__)
        self._wall = wall

    def __repr__(self) -> str:
        return f"<Spans to {self._provider!r}>"

    def takes(self) -> bool:
        """Every call: the sampler decides when it has seen the trace."""
        return True

    def write(self, ended: EndedCall) -> None:
        """One span, of which the end is now."""
        call, choice, error, code = ended.call, ended.choice, ended.error, ended.code
        account, now = ended.account(), self._wall()
        span = self._tracer.start_span(
            call.verb.value if choice is None else f"{call.verb.value} {choice.target.model}",
            _context(account.traceparent),
            SpanKind.SERVER,
            start_time=int((now - ended.seconds) * _NANOSECONDS),
        )
        if span.is_recording():  # most are not, where a caller samples
            span.set_attributes(_attributes(ended, account))
            if error:
                span.set_attribute("error.type", error)
            elif call.protocol == "grpc":
                span.set_attribute("rpc.grpc.status_code", _GRPC_NUMBERS.get(code, 2))
            elif code.isdecimal():
                span.set_attribute("http.response.status_code", int(code))
            if _is_fault(code, error):
                span.set_status(Status(StatusCode.ERROR))
        span.end(int(now * _NANOSECONDS))

    def close(self) -> None:
        """Send what is left, for a second at most: the collector may be away."""
        last = threading.Thread(target=self._provider.shutdown, daemon=True)
        last.start()
        last.join(_LAST_WORDS)


def _context(traceparent: str) -> Context:
    """That of the caller's span, which is on another machine; an empty one without it."""
    parent = parent_of(traceparent)
    if parent is None:
        return Context()
    flags = TraceFlags(TraceFlags.SAMPLED if parent.is_sampled else TraceFlags.DEFAULT)
    there = SpanContext(
        int(parent.trace, 16), int(parent.span, 16), is_remote=True, trace_flags=flags
    )
    return set_span_in_context(NonRecordingSpan(there), Context())


def _attributes(ended: EndedCall, account: Account) -> Attributes:
    call, choice = ended.call, ended.choice
    found: Attributes = {
        "servegate.protocol": call.protocol,
        "servegate.verb": call.verb.value,
        "servegate.replica": ended.replica.name,
        "servegate.tries": ended.tries,
        "servegate.request_id": account.request_id,
        "servegate.key": ended.key,
        "client.address": account.peer.rpartition(":")[0],
    }
    if call.protocol == "grpc":
        found["rpc.system"] = "grpc"
    else:
        found["http.request.body.size"] = account.received
        found["http.response.body.size"] = account.answered
    if choice is not None:
        found["servegate.model"], found["servegate.version"], found["servegate.route"] = (
            choice.labels
        )
        found["servegate.generation"] = choice.generation
    if account.upstream:
        found["servegate.upstream_ms"] = round(account.upstream * 1000)
    return {name: value for name, value in found.items() if value != ""}


def _is_fault(code: str, error: str) -> bool:
    """Whether the fault is the server's: what a caller did wrong is no error of the span."""
    if error:
        return error in _OUR_FAULTS
    return code in _SERVER_FAULTS or (code.isdecimal() and int(code) >= 500)
