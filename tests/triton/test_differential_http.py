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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import BareTriton, BareTritonFactory, load
from .fronting import Front, front
from .http_calls import CALLS, CONFIG_KEY, CONFIG_SECRET, FLEET, FORWARDED, RawCall
from .http_differences import DIFFERENCES
from .http_models import GONE, HELD, KNOWN
from .raw_http import Answer, ask

pytestmark = pytest.mark.triton

SOME = 100  # Triton's statistics come a little after the answers
EXPECTED = {name: one.fields for one in DIFFERENCES for name in one.calls}
COMPARED = (
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    "accept-encoding",
)


DYING_SECONDS = 3.0  # between the last answer of a Triton that crashes and its end


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
    for model in (*HELD, GONE):
        model.write(triton.repository)
        load(triton, model.name)
    unload = b"POST /v2/repository/models/gone/unload HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert ask(triton.http, unload)[0].status == 200
    with front(home, [triton], KNOWN) as gateway:
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
    assert len(EXPECTED) == sum(len(one.calls) for one in DIFFERENCES)
    assert len({one.data for one in CALLS.values()}) >= 150
