"""Fake Tritons: many replicas in one process, as the control plane's own clients see them."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from builders import until

from loadtests.bench.fleet_fakes import Fakes, host_of
from loadtests.bench.fleet_wire import Grpc
from serve.control.reconciliation.plan import held_of
from serve.core.replicas import Replica
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


def test_statistics_are_those_of_every_version_that_is_held() -> None:
    async def work(made: Scene) -> None:
        many = [[f"model-{number}", 1] for number in range(600)]  # more than one frame holds
        made.fakes.order({"hold": many, "first": 1, "count": 2})
        found = await made.at(TWO).statistics()
        assert len(found) == 600
        assert found["model-7", 1].calls == 1000

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
