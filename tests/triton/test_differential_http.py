"""The same bytes to a real Triton and to the gateway in front of it: what is told is the same.

What may differ is on one list, with its reason. A call that is on it and does not differ any more
fails, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class Pair:
    """A Triton, and the gateway in front of it."""

    triton: BareTriton
    gateway: Front


@pytest.fixture(scope="module")
def pair(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    triton = bare_triton_factory(
        f"--http-restricted-api=model-config:{CONFIG_KEY}={CONFIG_SECRET}",
        f"--http-header-forward-pattern=(?i){FORWARDED}.*",
    )
    for model in (*HELD, GONE):
        model.write(triton.repository)
        load(triton, model.name)
    unload = b"POST /v2/repository/models/gone/unload HTTP/1.1\r\nContent-Length: 0\r\n\r\n"
    assert ask(triton.http, unload)[0].status == 200
    with front(tmp_path_factory.mktemp("differential"), [triton], KNOWN) as gateway:
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


@pytest.mark.parametrize("name", CALLS)
def test_the_gateway_says_what_triton_says(pair: Pair, name: str) -> None:
    call = CALLS[name]
    for _ in range(SOME):  # until Triton says the same before and after
        directly = sent(pair.triton.http, call)
        through = sent(pair.gateway.http, call)
        if name not in FLEET or told(sent(pair.triton.http, call)) == told(directly):
            break
    differing = difference(directly, through)
    assert differing == EXPECTED.get(name, set()), (told(directly), told(through))


@pytest.mark.parametrize("name", CALLS)
def test_every_answer_names_its_call(pair: Pair, name: str) -> None:
    for one in sent(pair.gateway.http, CALLS[name]):
        assert one.status < 200 or one.header("servegate-request-id")


def test_every_difference_is_one_of_a_call_that_is_sent() -> None:
    assert set(EXPECTED) <= set(CALLS)
    assert len(EXPECTED) == sum(len(one.calls) for one in DIFFERENCES)


def test_there_are_enough_calls() -> None:
    assert len({one.data for one in CALLS.values()}) >= 150
