"""The simulated fleet: fake Tritons, and what is seen of the data planes."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from builders import snapshot, target, until, view
from loops import in_loop

from loadtests.bench.fleet_fakes import Fakes, host_of, name_of
from loadtests.bench.fleet_planes import Planes, calls_all, named, names_all
from loadtests.bench.fleet_wire import Grpc
from serve.app.paths import SNAPSHOT_FILE
from serve.control.reconciliation.plan import held_of
from serve.core.replicas import Replica
from serve.triton.control import TritonControl

Later = Callable[[float, Callable[[], None]], object]
ONE, TWO = host_of(1), host_of(2)
VERSIONS = '{"backend": "fake", "version_policy": {"specific": {"versions": [1, 3]}}}'

# --- fake Tritons ---------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def two_of(
    later: Later | None = None,
) -> AsyncIterator[tuple[Fakes, TritonControl, TritonControl]]:
    """Fakes at one port of every address of loopback, and clients of two."""
    loop = asyncio.get_running_loop()
    fakes = Fakes(later or loop.call_later)
    server = await loop.create_server(lambda: Grpc(fakes.answer, fakes.here), "0.0.0.0", 0)
    port = server.sockets[0].getsockname()[1]
    one, two = (TritonControl(Replica(host, host, 1, port, 2), timeout=10.0) for host in (ONE, TWO))
    try:
        yield fakes, one, two
    finally:
        await one.close()
        await two.close()
        server.close()


@in_loop
async def test_each_address_is_a_replica_of_its_own() -> None:
    async with two_of() as (_, one, two):
        await one.load("m", VERSIONS)
        await two.load("n", None)
        assert held_of(await one.index()) == {"m": (1, 3)}
        assert held_of(await two.index()) == {"n": (1,)}
        await one.unload("m")
        assert await one.index() == ()


@in_loop
async def test_a_load_takes_the_time_that_is_set() -> None:
    waits: list[tuple[float, Callable[[], None]]] = []
    async with two_of(lambda seconds, end: waits.append((seconds, end))) as (fakes, one, _):
        fakes.order({"load_seconds": 5.0})
        loading = asyncio.create_task(one.load("m", None))
        await until(lambda: bool(waits))
        assert await one.index() == ()
        ((seconds, end),) = waits
        end()
        await loading
        assert held_of(await one.index()) == {"m": (1,)}
        assert seconds == 5.0


@in_loop
async def test_statistics_are_those_of_every_version_that_is_held() -> None:
    async with two_of() as (fakes, _, two):
        many = [[f"model-{number}", 1] for number in range(600)]  # more than one frame holds
        fakes.order({"hold": many, "first": 1, "count": 2})
        found = await two.statistics()
        assert len(found) == 600
        assert found["model-7", 1].calls == 1000


@in_loop
async def test_a_fake_that_is_killed_is_cut_off_and_has_lost_everything() -> None:
    async with two_of() as (fakes, one, two):
        fakes.order({"hold": [["m", 1]], "first": 1, "count": 2})
        await one.index()
        await two.index()
        assert fakes.order({"away": [1], "tell": 1})["whole"] == 1
        assert await two.index() != ()
        assert fakes.held(ONE) == frozenset()
        fakes.order({"back": [1]})
        assert ONE not in fakes.away


# --- what is seen of data planes ------------------------------------------------------------------


def written(**holders: list[str]) -> bytes:
    """A snapshot as a worker keeps it: models, and who may be called for each."""
    models = (view(target(1, *names, model=name), name=name) for name, names in holders.items())
    known = [name_of(1), name_of(2)]
    return json.dumps(snapshot(*models, replicas=known).to_json(), separators=(",", ":")).encode()


def test_it_is_seen_who_is_there_and_who_is_called() -> None:
    both, one = [name_of(1), name_of(2)], [name_of(1)]
    whole, half = written(m=both, n=both), written(m=both, n=one)
    assert names_all(2)(half) and not names_all(3)(half)
    assert calls_all(2, 2)(whole)
    assert not calls_all(2, 2)(half) and not calls_all(2, 3)(whole) and not calls_all(3, 2)(whole)
    assert not calls_all(2, 2)(b"")
    alone = written(m=one, n=one)
    assert named(2, times=1)(alone) and named(1, times=2)(alone) and named(3, times=0)(alone)
    assert not named(2, times=2)(alone) and not named(3, times=0)(b"")


@in_loop
async def test_the_last_data_plane_counts(tmp_path: Path) -> None:
    folders = [tmp_path / "0", tmp_path / "1"]
    for folder in folders:
        folder.mkdir()
    planes = Planes(folders)
    waiting = asyncio.create_task(planes.all(lambda data: data == b"new", "news"))
    (folders[0] / SNAPSHOT_FILE).write_bytes(b"new")
    await asyncio.sleep(0)
    assert not waiting.done() and planes.newest == b"new"
    scratch = folders[1] / "scratch"  # as a worker writes it
    scratch.write_bytes(b"new")
    scratch.replace(folders[1] / SNAPSHOT_FILE)
    assert await waiting > 0
