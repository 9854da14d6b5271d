"""The scene of the simulated fleet: what is announced, and what is seen of the data planes."""

import asyncio
import json
from pathlib import Path
from typing import Any

from builders import snapshot, target, view
from fake_kubernetes import FakeApi

from loadtests.bench.fleet_cluster import NAMESPACE, SLICE, Cluster
from loadtests.bench.fleet_fakes import host_of, name_of
from loadtests.bench.fleet_planes import Planes, calls_all, named, names_all
from loadtests.bench.fleet_scene import write_models
from serve.app.paths import SNAPSHOT_FILE
from serve.control.registry import Registry

PORTS = {"http": 1, "grpc": 2, "metrics": 3}


def announced(*steps: Any) -> dict[str, str]:
    """The addresses by pod that the API tells after some steps."""

    async def work() -> dict[str, str]:
        async with FakeApi() as api:
            cluster = Cluster(api, PORTS)
            for step in steps:
                step(cluster)
            slices = api.objects("EndpointSlice", NAMESPACE)
            assert all(len(one["endpoints"]) <= SLICE + 1 for one in slices)
            return {
                each["targetRef"]["name"]: each["addresses"][0]
                for one in slices
                for each in one["endpoints"]
            }

    return asyncio.run(work())


def test_a_fleet_is_announced_in_slices() -> None:
    found = announced(lambda cluster: cluster.announce(range(1, 251)))
    assert len(found) == 250
    assert found[name_of(250)] == host_of(250)


def test_a_pod_that_ends_is_terminating_before_it_is_gone() -> None:
    async def work() -> None:
        async with FakeApi() as api:
            cluster = Cluster(api, PORTS)
            cluster.announce([1, 2])
            cluster.end(2)
            (one,) = api.objects("EndpointSlice", NAMESPACE)
            conditions = [each["conditions"] for each in one["endpoints"]]
            assert [each["terminating"] for each in conditions] == [False, True]
            assert [each["ready"] for each in conditions] == [True, False]

    asyncio.run(work())


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


def test_the_last_data_plane_counts(tmp_path: Path) -> None:
    async def work() -> None:
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
        async with asyncio.timeout(20):
            assert await waiting > 0

    asyncio.run(work())


def test_the_models_are_a_repository_that_can_be_read(tmp_path: Path) -> None:
    versions = write_models(tmp_path, 3)
    registry = Registry(tmp_path)
    registry.scan()
    assert {(name, version) for name, one in registry.models.items() for version in one.wanted} == (
        set(versions)
    )
    assert len(versions) == 4 and not any(one.problem for one in registry.models.values())
