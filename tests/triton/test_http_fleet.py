"""Two real Tritons behind the gateway: what they say together is what each of them says."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from .conftest import BareTriton, BareTritonFactory, load
from .fronting import Front, front
from .http_calls import ADD, X, get, post
from .http_models import HELD
from .raw_http import Answer, ask

pytestmark = pytest.mark.triton

[MODEL] = [model for model in HELD if model.name == "add"]
PATIENCE = 10.0  # seconds; a bound
CALLS = 12


@dataclass(frozen=True, slots=True)
class Fleet:
    """Two Tritons, and the gateway in front of them."""

    tritons: tuple[BareTriton, BareTriton]
    gateway: Front

    def counts(self) -> list[int]:
        """How many calls of version 2 the gateway says there were, and how many each Triton."""
        addresses = (self.gateway.http, *(one.http for one in self.tritons))
        told = [_json(ask(address, get(f"{ADD}/stats").data)[0]) for address in addresses]
        return [one["model_stats"][1]["inference_stats"]["success"]["count"] for one in told]


def _json(answer: Answer) -> Any:
    assert answer.status == 200, answer
    return json.loads(answer.body)


@pytest.fixture
def fleet(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    tritons = bare_triton_factory(), bare_triton_factory()
    for triton in tritons:
        MODEL.write(triton.repository)
        load(triton, MODEL.name)
    with front(tmp_path_factory.mktemp("fleet"), tritons, [MODEL]) as gateway:
        yield Fleet(tritons, gateway)


def test_two_tritons_tell_as_one_and_their_counters_only_rise(fleet: Fleet) -> None:
    for _ in range(CALLS):
        assert ask(fleet.gateway.http, post(f"{ADD}/infer", X).data)[0].status == 200
    until = time.monotonic() + PATIENCE
    while fleet.counts()[0] < CALLS and time.monotonic() < until:
        pass  # Triton counts a call a little after it has answered
    merged, *each = fleet.counts()
    assert merged == sum(each) == CALLS
    assert all(each)

    index = post("/v2/repository/index", b"").data
    [directly] = ask(fleet.tritons[0].http, index)
    [through] = ask(fleet.gateway.http, index)
    assert through.body == directly.body

    load(fleet.tritons[0], MODEL.name)  # its counters begin anew
    merged, first, second = fleet.counts()
    assert (merged, first, second) == (CALLS, 0, each[1])
    for version in (1, 2):
        asked = post(f"{ADD}/versions/{version}/infer", X).data
        assert ask(fleet.gateway.http, asked)[0].status == 200
