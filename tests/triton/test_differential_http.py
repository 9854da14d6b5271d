"""The same bytes to a real Triton and to the gateway in front of it: what is told is the same.

What may differ is on one list, with its reason. A call that is on it and does not differ any more
fails, too.

Triton itself can crash by such calls, though very rarely: once in some hundred thousand, and by no
call twice. One crash is told, with the end of Triton's log, and the call is made again.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from .conftest import BareTriton, BareTritonFactory, load
from .fronting import Front, front
from .http_calls import CONFIG_KEY, CONFIG_SECRET, FLEET, FORWARDED, ROUTES, RawCall
from .http_differences import DIFFERENCES
from .http_framing_calls import BINARY, FRAMING, GENERATE
from .http_infer_calls import DATATYPES, INFER, PARAMETERS
from .http_models import GONE, HELD, KNOWN
from .raw_http import Answer, ask

pytestmark = pytest.mark.triton

SOME = 100  # Triton's statistics come a little after the answers
KINDS = (ROUTES, FLEET, INFER, DATATYPES, BINARY, FRAMING, PARAMETERS, GENERATE)
CALLS: Mapping[str, RawCall] = {name: one for kind in KINDS for name, one in kind.items()}
EXPECTED = {name: one.fields for one in DIFFERENCES for name in one.calls}
COMPARED = (
    "content-type",
    "content-encoding",
    "inference-header-content-length",
    "accept-encoding",
)


DYING_SECONDS = 3.0  # between the last that is heard of a Triton that crashes and its end
CRASHES = 1  # of Triton that are forgiven


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


class Pairs:
    """The pair that runs; the next one after a crash of Triton."""

    def __init__(self, start: BareTritonFactory, home: Path, stack: ExitStack) -> None:
        self._start, self._home, self._stack = start, home, stack
        self._crashes = 0
        self.running = self._next()

    def may_repeat(self, call: str) -> bool:
        """Whether Triton has crashed, and is forgiven: then the next pair runs."""
        triton = self.running.triton
        if self._crashes == CRASHES or not self.running.has_crashed:
            return False
        self._crashes += 1
        end = triton.log.read_text(errors="replace")[-4000:]
        warnings.warn(
            f"Triton ended with {triton.process.returncode} by {call}: {end}", stacklevel=2
        )
        self.running = self._next()
        return True

    def _next(self) -> Pair:
        triton = self._start(
            f"--http-restricted-api=model-config:{CONFIG_KEY}={CONFIG_SECRET}",
            f"--http-header-forward-pattern=(?i){FORWARDED}.*",
        )
        for model in (*HELD, GONE):
            model.write(triton.repository)
            load(triton, model.name)
        unload = b"POST /v2/repository/models/gone/unload HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
        assert ask(triton.http, unload)[0].status == 200
        home = self._home / str(self._crashes)
        home.mkdir()
        return Pair(triton, self._stack.enter_context(front(home, [triton], KNOWN)))


@pytest.fixture(scope="module")
def pairs(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pairs]:
    with ExitStack() as stack:
        yield Pairs(bare_triton_factory, tmp_path_factory.mktemp("differential"), stack)


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


def compare(pair: Pair, name: str) -> None:
    call = CALLS[name]
    for _ in range(SOME):  # until Triton says the same before and after
        directly = sent(pair.triton.http, call)
        through = sent(pair.gateway.http, call)
        if name not in FLEET or told(sent(pair.triton.http, call)) == told(directly):
            break
    differing = difference(directly, through)
    assert differing == EXPECTED.get(name, set()), (told(directly), told(through))


@pytest.mark.parametrize("name", CALLS)
def test_the_gateway_says_what_triton_says(pairs: Pairs, name: str) -> None:
    try:
        compare(pairs.running, name)
    except (AssertionError, OSError):
        if not pairs.may_repeat(name):
            raise
        compare(pairs.running, name)


@pytest.mark.parametrize("name", CALLS)
def test_every_answer_names_its_call(pairs: Pairs, name: str) -> None:
    for one in sent(pairs.running.gateway.http, CALLS[name]):
        assert one.status < 200 or one.header("servegate-request-id")


def test_every_difference_is_one_of_a_call_that_is_sent() -> None:
    assert set(EXPECTED) <= set(CALLS)
    assert len(EXPECTED) == sum(len(one.calls) for one in DIFFERENCES)


def test_there_are_enough_calls() -> None:
    assert len({one.data for one in CALLS.values()}) >= 150
