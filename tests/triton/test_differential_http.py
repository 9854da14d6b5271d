"""The same bytes to a real Triton and to the gateway in front of it: what is told is the same.

What may differ is on one list, with its reason. A call that is on it and does not differ any more
fails, too.

Triton itself can crash by such calls, though very rarely: once in some hundred thousand, and by no
call twice. After one crash, which is reported with the end of Triton's log, all calls are repeated.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from .client_models import ADD, GONE, LATE, MIRROR, REPEAT, TOLD
from .conftest import BareTriton, BareTritonFactory, hold
from .fronting import Front, front
from .http_calls import CALLS, CONFIG_KEY, CONFIG_SECRET, FLEET, FORWARDED, RawCall
from .raw_http import Answer, ask

pytestmark = pytest.mark.triton

SOME = 100  # Triton's statistics come a little after the answers
COMPARED = (
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    "accept-encoding",
)
DYING_SECONDS = 3.0  # between the last answer of a Triton that crashes and its end

# Fields that differ, why, and in the answers to which calls. All else is a fault.
DIFFERENCES = (
    (
        "status, content-type, body",
        "Open Inference puts a slash behind the path of the server's metadata",
        "GET server metadata with a slash",
    ),
    (
        "content-type, body",
        "Open Inference and its clients want a JSON object where Triton's clients want a status",
        "GET live | GET live with a query",
    ),
    (
        "status, content-type, body",
        "the gateway is not ready while a model that it has to serve is not",
        "GET ready",
    ),
    (
        "status, body",
        "a model that no replica has ready may come back, so clients are to try again",
        "GET metadata of an unloaded model | GET config of an unloaded model | generate of gone |"
        " generate_stream of gone",
    ),
    (
        "status, content-type, body",
        "the same; Triton calls it plain text when it is infer that asks",
        "infer of an unloaded model",
    ),
    (
        "content-type, body",
        "the same with a version, where Triton says 503, too",
        "infer of a version of an unloaded model",
    ),
    (
        "status, body",
        "management would change or show one replica out of many: the answer says what to use",
        "GET trace settings | GET log settings | GET shared memory status |"
        " POST load of an unknown model | POST unload of an unknown model | POST unregister |"
        " POST logging",
    ),
    (
        "content-type, body",
        "a version that is a word is a label here, and the answer says which there are",
        "GET version that is a word",
    ),
    (
        "body",
        "the same where Triton calls the error plain text",
        "POST infer of a version that is a word",
    ),
    (
        "body, is whole",
        "an answer to HEAD has no body (RFC 9110); Triton sends one, which breaks the next answer",
        "HEAD /v2 | HEAD /v2/health/live | HEAD /v2/models/add | HEAD /v2/models/add/infer |"
        " HEAD /v2/x",
    ),
    (
        "content-type, body",
        "a length of the JSON that cannot be is refused before anything is sent to a replica",
        "bytes with a header beyond the body | bytes with a negative header",
    ),
    (
        "body",
        "the same; Triton 2.51 takes what is no number for 0, later ones refuse it",
        "bytes with a header that is no number | bytes with an empty header",
    ),
    (
        "status, body",
        "two such lengths may mean one thing to the gateway and another to Triton",
        "bytes with the header twice",
    ),
    (
        "body",
        "names of headers are in lower case here, and this Triton makes parameters of some",
        "infer with a header that becomes a parameter",
    ),
    (
        "number of answers",
        "an HTTP/1.0 connection is closed after its answer",
        "HTTP/1.0 that stays, twice",
    ),
    (
        "is chunked",
        "HTTP/1.0 knows no chunks; Triton sends them all the same",
        "generate over HTTP/1.0 | generate_stream over HTTP/1.0",
    ),
    (
        "status, body",
        "what two parsers may read in two ways is refused (RFC 9112)",
        "a space before a colon | two lengths | two lengths that differ | a length and chunks |"
        " another coding | a later version | FOO metadata",
    ),
    ("status, body", "HTTP/1.1 requires a Host (RFC 9112)", "no host"),
    ("status, content-type, body", "the same where Triton calls the error plain text", "FOO ready"),
    (
        "number of answers",
        "what is no HTTP is answered with 400; Triton hangs up without a word",
        "a head in two lines | a header without a colon | a length that is no number |"
        " a negative length | HTTP/2 | no HTTP at all",
    ),
)
EXPECTED = {
    call: set(fields.split(", ")) for fields, _, calls in DIFFERENCES for call in calls.split(" | ")
}


@dataclass(frozen=True, slots=True)
class Pair:
    """A Triton, and the gateway in front of it."""

    triton: BareTriton
    gateway: Front

    @property
    def has_crashed(self) -> bool:
        try:
            self.triton.process.wait(DYING_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        return True


@contextmanager
def started(start: BareTritonFactory, home: Path) -> Iterator[Pair]:
    triton = start(
        f"--http-restricted-api=model-config:{CONFIG_KEY}={CONFIG_SECRET}",
        f"--http-header-forward-pattern=(?i){FORWARDED}.*",
    )
    told, unloaded = replace(TOLD, versions=(1,)), replace(GONE, versions=())
    hold(triton, (ADD, LATE, MIRROR, REPEAT, told, GONE))
    with front(home, [triton], (ADD, LATE, MIRROR, REPEAT, told, unloaded)) as gateway:
        yield Pair(triton, gateway)


def told(answers: list[Answer]) -> list[dict[str, Any]]:
    """What is compared of an answer: everything but headers of the gateway's own."""
    return [
        {
            "status": one.status,
            **{name: one.header(name) for name in COMPARED},
            "is chunked": one.chunks is not None,
            "is whole": one.is_whole,
            "body": one.body,
        }
        for one in answers
    ]


def difference(directly: list[Answer], through: list[Answer]) -> set[str]:
    if len(directly) != len(through):
        return {"number of answers"}
    pairs = zip(told(directly), told(through), strict=True)
    return {name for a, b in pairs for name in a if a[name] != b[name]}


def sent(address: str, call: RawCall) -> list[Answer]:
    return ask(address, call.data, *call.then, count=call.answers)


def surprises(pair: Pair, calls: Mapping[str, RawCall]) -> Iterator[str]:
    """What is not as expected of each call; nothing of a call that is answered as it has to be."""
    for name, call in calls.items():
        for _ in range(SOME):  # until Triton says the same before and after
            directly = sent(pair.triton.http, call)
            through = sent(pair.gateway.http, call)
            if name not in FLEET or told(sent(pair.triton.http, call)) == told(directly):
                break
        differing = difference(directly, through)
        if differing != EXPECTED.get(name, set()):
            yield f"{name}: {differing} differ: {told(directly)} / {told(through)}"
        if not all(one.status < 200 or one.header("servegate-request-id") for one in through):
            yield f"{name}: an answer does not name its call"


def test_the_gateway_answers_as_triton_does_and_names_each_call(
    bare_triton_factory: BareTritonFactory, tmp_path: Path
) -> None:
    for attempt in ("first", "second"):
        with started(bare_triton_factory, tmp_path / attempt) as pair:
            try:
                found = list(surprises(pair, CALLS))
            except OSError as error:
                found = [repr(error)]
            if not found or not pair.has_crashed:
                break
            log = pair.triton.log.read_text(errors="replace")[-4000:]
            warnings.warn(
                f"Triton ended with {pair.triton.process.returncode}: {log}", stacklevel=2
            )
    assert found == []


def test_every_difference_is_one_of_a_call_that_is_sent() -> None:
    assert set(EXPECTED) <= set(CALLS)
    assert len({one.data for one in CALLS.values()}) >= 150
