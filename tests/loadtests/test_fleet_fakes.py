"""Fake Tritons: many replicas in one process, as the control plane's own clients see them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc.aio
import pytest
from builders import until

from loadtests.bench.fleet_fakes import Fakes, host_of, metrics_of, name_of
from loadtests.bench.fleet_wire import Grpc
from serve.control.reconciling.planning import held_of
from serve.core.errors import TritonFailed, Unavailable
from serve.core.replicas import Replica
from serve.triton import metrics
from serve.triton.control import TritonControl

Later = Callable[[float, Callable[[], None]], object]
ONE, TWO = host_of(1), host_of(2)
VERSIONS = '{"backend": "fake", "version_policy": {"specific": {"versions": [1, 3]}}}'


class Scene:
    """Fakes at one port of every address of loopback, and clients."""

    def __init__(self, fakes: Fakes, port: int) -> None:
        self.fakes = fakes
        self.port = port
        self._clients: dict[str, TritonControl] = {}

    def at(self, host: str) -> TritonControl:
        """The client of one fake."""
        if host not in self._clients:
            replica = Replica(host, host, 1, self.port, 2)
            self._clients[host] = TritonControl(replica, timeout=10.0)
        return self._clients[host]

    async def close(self) -> None:
        for one in self._clients.values():
            await one.close()


@contextlib.asynccontextmanager
async def scene(later: Later | None) -> AsyncIterator[Scene]:
    loop = asyncio.get_running_loop()
    fakes = Fakes(later or loop.call_later)
    server = await loop.create_server(lambda: Grpc(fakes.answer, fakes.here), "0.0.0.0", 0)
    made = Scene(fakes, server.sockets[0].getsockname()[1])
    try:
        async with asyncio.timeout(30):
            yield made
    finally:
        await made.close()
        server.close()


def play(work: Callable[[Scene], Awaitable[Any]], later: Later | None = None) -> Any:
    async def all_of_it() -> Any:
        async with scene(later) as made:
            return await work(made)

    return asyncio.run(all_of_it())


def test_numbers_have_names_and_addresses_of_their_own() -> None:
    assert (name_of(7), host_of(1), host_of(256)) == ("fake-00007", "127.1.0.1", "127.1.1.0")
    assert len({host_of(number) for number in range(1, 70_000)}) == 69_999


def test_each_address_is_a_replica_of_its_own() -> None:
    async def work(made: Scene) -> None:
        await made.at(ONE).load("m", VERSIONS)
        await made.at(TWO).load("n", None)
        assert held_of(await made.at(ONE).index()) == {"m": (1, 3)}
        assert held_of(await made.at(TWO).index()) == {"n": (1,)}
        await made.at(ONE).unload("m")
        assert await made.at(ONE).index() == ()

    play(work)


def test_a_load_takes_the_time_that_is_set() -> None:
    waits: list[float] = []
    ends: list[Callable[[], None]] = []

    def later(seconds: float, end: Callable[[], None]) -> None:
        waits.append(seconds)
        ends.append(end)

    async def work(made: Scene) -> None:
        made.fakes.order({"load_seconds": 5.0})
        loading = asyncio.create_task(made.at(ONE).load("m", None))
        await until(lambda: bool(ends))
        assert await made.at(ONE).index() == ()
        ends.pop()()
        await loading
        assert held_of(await made.at(ONE).index()) == {"m": (1,)}
        assert waits == [5.0]

    play(work, later)


def test_the_configuration_is_that_of_the_last_load() -> None:
    async def work(made: Scene) -> None:
        await made.at(ONE).load("m", VERSIONS)
        assert list((await made.at(TWO).config("m")).version_policy.specific.versions) == [1, 3]
        assert (await made.at(TWO).config("other")).backend == "fake"
        with pytest.raises(TritonFailed, match="failed to load 'm'"):
            await made.at(ONE).load("m", '{"version_policy": 7}')

    play(work)


def test_statistics_are_those_of_every_version_that_is_held() -> None:
    async def work(made: Scene) -> None:
        many = [[f"model-{number}", 1] for number in range(600)]  # more than one frame holds
        made.fakes.order({"hold": many, "first": 1, "count": 2})
        found = await made.at(TWO).statistics()
        assert len(found) == 600
        assert found["model-7", 1].calls == 1000

    play(work)


def test_metrics_are_read_as_tritons_are() -> None:
    read = metrics.read(metrics_of(frozenset({("m", 1), ("m", 2)})).decode())
    assert set(read.models) == {("m", 1), ("m", 2)}
    assert read.cpu_utilization == 0.5


def test_what_is_unknown_is_refused_in_words() -> None:
    async def work(made: Scene) -> None:
        async with grpc.aio.insecure_channel(f"{ONE}:{made.port}") as channel:
            unknown = channel.unary_unary("/inference.GRPCInferenceService/ModelStreamInfer")
            with pytest.raises(grpc.aio.AioRpcError, match="does not know ModelStreamInfer"):
                await unknown(b"")

    play(work)


def test_a_fake_that_is_killed_is_cut_off_and_has_lost_everything() -> None:
    async def work(made: Scene) -> None:
        made.fakes.order({"hold": [["m", 1]], "first": 1, "count": 2})
        await made.at(ONE).index()
        await made.at(TWO).index()
        told = made.fakes.order({"away": [1], "tell": 1})
        assert told["whole"] == 1
        assert await made.at(TWO).index() != ()
        assert made.fakes.held(ONE) == frozenset()
        made.fakes.order({"back": [1]})
        assert ONE not in made.fakes.away

    play(work)


def test_calls_are_counted_by_method() -> None:
    async def work(made: Scene) -> None:
        for _ in range(3):
            await made.at(ONE).index()
        await made.at(TWO).settings("logging", "", {})
        assert made.fakes.order({})["calls"] == {"RepositoryIndex": 3, "LogSettings": 1}

    play(work)


def test_many_questions_at_one_time_on_one_connection_are_all_answered() -> None:
    async def work(made: Scene) -> None:
        many = [[f"model-{number}", 1] for number in range(300)]
        made.fakes.order({"hold": many, "first": 1, "count": 1})
        answers = await asyncio.gather(*(made.at(ONE).statistics() for _ in range(50)))
        assert {len(one) for one in answers} == {300}
        assert len(made.fakes.here) == 1

    play(work)


def test_the_same_list_gives_the_same_object_and_another_list_another() -> None:
    """Of the control plane's client: what has not changed is not read again."""

    async def work(made: Scene) -> None:
        await made.at(ONE).load("m", None)
        first = await made.at(ONE).index()
        assert await made.at(ONE).index() is first
        await made.at(ONE).load("n", None)
        assert held_of(await made.at(ONE).index()) == {"m": (1,), "n": (1,)}

    play(work)


def test_who_is_not_there_is_unavailable() -> None:
    async def work(made: Scene) -> None:
        nobody = TritonControl(Replica("x", "127.0.0.1", 1, 9, 2), timeout=0.5)
        with pytest.raises(Unavailable):
            await nobody.index()
        await nobody.close()

    play(work)
