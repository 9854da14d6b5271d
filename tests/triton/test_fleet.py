"""Two real Tritons behind the gateway: to clients they are one server.

Statistics are those of both. All calls of a sequence reach the Triton that keeps its state.

The model adds up what each sequence brings and says which process did it: Triton refuses a call
of a sequence that began elsewhere, and a sum shows whether one was missed.

    sequence 1 ──start──step──step──end──▶ replica a, version 1
    sequence 2 ──start──step──step──end──▶ replica b, version 1
    sequence 3 ──start──step──step──end──▶ replica b, version 2      (a split draws once for each)
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pytest
import tritonclient.grpc as blocking_grpc
import tritonclient.grpc.aio as grpc
import tritonclient.http as blocking_http
import tritonclient.http.aio as http
from harness import until

from .conftest import BareTriton, BareTritonFactory, hold
from .fronting import Front, front
from .sequence_models import PLAIN, SPLIT

pytestmark = pytest.mark.triton

T = TypeVar("T")
Identity = int | str
PATIENCE = 60.0  # seconds; a bound
STEPS = 4
NUMBERS: list[Identity] = [*range(1, 21), 2**31, 2**63 - 1]
BEYOND: list[Identity] = [2**63 + 5, 2**64 - 1]  # which the gRPC client cannot send
WORDS: list[Identity] = ["1", "2", "a/b", "naïve \U0001f40d", '"quoted"', "x" * 128]
WORDS += [f"word-{number}" for number in range(20)]


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call was told, and by whom."""

    sum: float
    here: str
    version: str


@dataclass(frozen=True, slots=True)
class Two:
    """Two Tritons with the same models, and a gateway in front of both."""

    tritons: tuple[BareTriton, BareTriton]
    front: Front

    def addresses(self, module: Any) -> list[str]:
        """Where the clients of this module find the gateway, and each Triton."""
        served = (self.front, *self.tritons)
        return [one.http if module is blocking_http else one.grpc for one in served]


@pytest.fixture(scope="module")
def two(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Two]:
    tritons = (bare_triton_factory(), bare_triton_factory())
    for triton in tritons:
        hold(triton, (PLAIN, SPLIT))
    with front(tmp_path_factory.mktemp("front"), tritons, (PLAIN, SPLIT)) as running:
        yield Two(tritons, running)


def step(number: int, identity: Identity) -> dict[str, Any]:
    """The arguments of a sequence's step, which brings its own number."""
    return {
        "sequence_id": identity,
        "sequence_start": number == 0,
        "sequence_end": number == STEPS - 1,
    }


def x(module: Any, value: float, **options: Any) -> list[Any]:
    made = module.InferInput("x", [1, 1], "FP32")
    made.set_data_from_numpy(np.array([[value]], np.float32), **options)
    return [made]


def read(answer: Any) -> Answer:
    said = answer.get_response()
    version = said["model_version"] if isinstance(said, dict) else said.model_version
    here = answer.as_numpy("here")[0][0]
    here = here if isinstance(here, str) else here.decode()
    return Answer(float(answer.as_numpy("sum")[0][0]), here, version)


Send = Callable[[str, int, Identity], Awaitable[Answer]]


def over_http(client: Any, *, binary: bool, **options: Any) -> Send:
    async def send(model: str, number: int, identity: Identity) -> Answer:
        wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in ("sum", "here")]
        asked = x(http, number, binary_data=binary)
        sent = step(number, identity) | options
        return read(await client.infer(model, asked, outputs=wanted, **sent))

    return send


def over_grpc(client: Any, **options: Any) -> Send:
    async def send(model: str, number: int, identity: Identity) -> Answer:
        return read(await client.infer(model, x(grpc, number), **step(number, identity), **options))

    return send


FORMS: dict[str, Callable[[Any, Any], Send]] = {
    "http json": lambda http, _: over_http(http, binary=False),
    "http binary": lambda http, _: over_http(http, binary=True),
    "http gzip": lambda http, _: over_http(http, binary=True, request_compression_algorithm="gzip"),
    "grpc": lambda _, grpc: over_grpc(grpc),
    "grpc gzip": lambda _, grpc: over_grpc(grpc, compression_algorithm="gzip"),
}


def through(two: Two, act: Callable[[Any, Any], Awaitable[T]]) -> T:
    """Do this with clients of the gateway."""

    async def run() -> T:
        async with (
            asyncio.timeout(PATIENCE),
            http.InferenceServerClient(two.front.http) as over_http,
            grpc.InferenceServerClient(two.front.grpc) as over_grpc,
        ):
            return await act(over_http, over_grpc)

    said = asyncio.run(run())
    two.front.wait_idle()
    return said


def check(sequences: dict[Identity, list[Answer]]) -> None:
    """Every sequence has the right sums, all from one process and one version."""
    for identity, answers in sequences.items():
        assert [answer.sum for answer in answers] == [0.0, 1.0, 3.0, 6.0], identity
        assert len({(answer.here, answer.version) for answer in answers}) == 1, identity


def places(sequences: dict[Identity, list[Answer]]) -> set[str]:
    """The processes that answered: one for each version on each replica."""
    return {answer.here for answers in sequences.values() for answer in answers}


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_stays_on_one_replica_and_version_while_others_go_on(
    two: Two, form: str
) -> None:
    identities = NUMBERS + WORDS + (BEYOND if form.startswith("http") else [])

    async def act(*both: Any) -> list[list[Answer]]:
        send = FORMS[form](*both)

        async def whole(identity: Identity) -> list[Answer]:
            return [await send("split", number, identity) for number in range(STEPS)]

        return await asyncio.gather(*map(whole, identities))

    told = dict(zip(identities, through(two, act), strict=True))
    check(told)
    versions = [answers[0].version for answers in told.values()]
    assert 5 < versions.count("1") < len(identities) - 5
    assert len(places(told)) == 4


def test_one_stream_carries_many_sequences(two: Two) -> None:
    identities = [*NUMBERS, *WORDS]

    async def asked() -> AsyncIterator[dict[str, Any]]:
        for number in range(STEPS):
            for place, identity in enumerate(identities):
                more = step(number, identity) | {"request_id": str(place)}
                yield {"model_name": "split", "inputs": x(grpc, number), **more}

    async def act(_: Any, client: Any) -> dict[Identity, list[Answer]]:
        told: dict[Identity, list[Answer]] = {identity: [] for identity in identities}
        async for result, error in client.stream_infer(asked()):
            assert error is None, error
            told[identities[int(result.get_response().id)]].append(read(result))
        return told

    told = through(two, act)
    check(told)
    assert len(places(told)) == 4


def test_a_sequence_may_change_its_protocol_on_the_way(two: Two) -> None:
    async def act(*both: Any) -> dict[Identity, list[Answer]]:
        forms = ("http json", "grpc", "http gzip", "http binary")
        sends = [FORMS[form](*both) for form in forms]
        return {
            identity: [await send("split", number, identity) for number, send in enumerate(sends)]
            for identity in (*NUMBERS, *WORDS)
        }

    check(through(two, act))


@pytest.mark.parametrize("form", ["http json", "grpc"])
def test_a_model_without_sequences_is_called_as_if_there_were_no_id(two: Two, form: str) -> None:
    """Each call is drawn and balanced by itself."""

    async def act(*both: Any) -> list[Answer]:
        send = FORMS[form](*both)
        return [await send("plain", 1, 7) for _ in range(60)]

    assert len(places({7: through(two, act)})) == 4


# --- statistics ----------------------------------------------------------------------------------

CALLS = 12


def counted(module: Any, address: str) -> int:
    """How many calls of version 1 have gone well."""
    with module.InferenceServerClient(address) as client:
        said = client.get_inference_statistics("plain", "1")
    if module is blocking_grpc:
        return int(said.model_stats[0].inference_stats.success.count)
    return int(said["model_stats"][0]["inference_stats"]["success"]["count"])


def call(module: Any, gateway: str) -> None:
    """Triton counts a call a moment after it has answered."""
    before = counted(module, gateway)
    with module.InferenceServerClient(gateway) as client:
        for _ in range(CALLS):
            client.infer("plain", x(module, 1), model_version="1")
    until(lambda: counted(module, gateway) >= before + CALLS)


@pytest.mark.parametrize("module", [blocking_http, blocking_grpc], ids=["http", "grpc"])
def test_statistics_are_the_sums_of_all_replicas(two: Two, module: Any) -> None:
    gateway, *tritons = two.addresses(module)
    before = [counted(module, address) for address in tritons]
    assert counted(module, gateway) == sum(before)
    call(module, gateway)
    after = [counted(module, address) for address in tritons]
    assert counted(module, gateway) == sum(after) == sum(before) + CALLS
    assert all(now > then for now, then in zip(after, before, strict=True))


def test_counters_only_rise_though_those_of_one_triton_begin_anew(two: Two) -> None:
    gateway, *tritons = two.addresses(blocking_http)
    call(blocking_http, gateway)
    all_calls, _, second = (counted(blocking_http, address) for address in (gateway, *tritons))
    with blocking_http.InferenceServerClient(tritons[0]) as client:
        client.load_model("plain")
    assert [counted(blocking_http, address) for address in tritons] == [0, second]
    assert counted(blocking_http, gateway) == all_calls
