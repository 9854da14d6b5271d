"""Questions over gRPC that are about the fleet: every replica is asked, and one answer is told."""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, TypeVar

import pytest
from builders import snapshot, target, until, view
from grpc_wire import LOOPS, Received, Scene, play
from tritonclient.grpc import service_pb2 as pb

from serve.core.access import Key, Role
from serve.core.calls import Reply
from serve.core.snapshot import Snapshot
from serve.listeners.grpc.fleet import FleetGrpc
from serve.listeners.grpc.services import Asked, Service, Unary
from serve.wire.statistics_grpc import INDEX, METADATA, STATISTICS

T = TypeVar("T")
ONE = snapshot(view(target(1, "a")))
TWO = snapshot(view(target(1, "a", "b")))
READY = pb.RepositoryIndexResponse.ModelIndex(name="m", version="1", state="READY")
UNREADY = pb.RepositoryIndexResponse.ModelIndex(
    name="m", version="1", state="UNAVAILABLE", reason="x"
)
ANSWERS: dict[str, Any] = {
    STATISTICS: pb.ModelStatisticsResponse,
    INDEX: pb.RepositoryIndexResponse,
    METADATA: pb.ModelMetadataResponse,
}


@pytest.fixture(params=LOOPS)
def loop(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def counted(
    count: int, *, name: str = "m", version: str = "1", last: int = 0
) -> pb.ModelStatisticsResponse:
    one = pb.ModelStatistics(name=name, version=version, last_inference=last, inference_count=count)
    one.inference_stats.success.count = count
    one.batch_stats.add(batch_size=2).compute_infer.count = count
    return pb.ModelStatisticsResponse(model_stats=[one])


class Asking:
    """A client of a listener that has the fleet's methods."""

    def __init__(self, scene: Scene, services: dict[str, Service]) -> None:
        self.scene = scene
        self.fleet = FleetGrpc(scene.plane.gateway, scene.pool, clock=scene.plane.clock)
        services |= self.fleet.services()
        self._calls = 0

    def say(self, **answers: Any) -> None:
        """What the replicas answer, whatever they are asked."""
        for name, message in answers.items():
            body = message if isinstance(message, bytes) else message.SerializeToString()
            self.scene.tritons[name].says = lambda request, body=body: body

    async def ask(self, method: str, asked: Any, key: str = "") -> tuple[Received, Any]:
        """What is heard, and the message in it."""
        client = await self.scene.client()
        metadata = (("authorization", f"Bearer {key}"),) if key else ()
        body = asked if isinstance(asked, bytes) else asked.SerializeToString()
        client.call(1, body, method, metadata)
        [heard] = await self.scene.over(client, 1)
        [message] = heard.messages or [b""]
        return heard, ANSWERS[method].FromString(message)

    async def counts(self, model: str = "") -> list[tuple[str, str, int]]:
        """Names, versions, and how many calls were counted."""
        _, told = await self.ask(STATISTICS, pb.ModelStatisticsRequest(name=model))
        for one in told.model_stats:
            assert one.inference_stats.success.count == one.inference_count
        return [(one.name, one.version, one.inference_count) for one in told.model_stats]


def playing(scenario: Callable[[Asking], Any], loop: str, now: Snapshot) -> Any:
    """Act a scenario out; the fleet is there as soon as its scene is."""
    behind: dict[str, Service] = {}

    def late(method: str) -> Unary:
        async def answer(asked: Asked) -> Reply:
            service = behind[method]
            assert isinstance(service, Unary)
            return await service.answer(asked)

        return Unary(answer)

    async def act(scene: Scene) -> Any:
        return await scenario(Asking(scene, behind))

    return play(act, loop, now, services={method: late(method) for method in ANSWERS})


def test_what_all_replicas_have_counted_is_added_up(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.say(a=counted(3, last=7), b=counted(4, last=5))
        return await asking.ask(STATISTICS, pb.ModelStatisticsRequest())

    heard, told = playing(scenario, loop, TWO)
    assert told == counted(7, last=7)
    assert heard.trailers == {"grpc-status": "0"}


def test_a_replica_that_begins_anew_keeps_what_it_had_counted(loop: str) -> None:
    async def scenario(asking: Asking) -> list[Any]:
        seen = []
        for a, b in ((3, 4), (0, 5), (2, 5)):
            asking.say(a=counted(a), b=counted(b))
            seen.append((await asking.counts())[0][2])
        return seen

    assert playing(scenario, loop, TWO) == [7, 8, 10]


def test_a_replica_that_cannot_be_asked_is_left_out_and_named(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.say(a=counted(3))
        asking.scene.tritons["b"].close()
        return await asking.ask(STATISTICS, pb.ModelStatisticsRequest())

    heard, told = playing(scenario, loop, TWO)
    assert told == counted(3)
    assert heard.trailers["servegate-partial"] == "b"


def test_a_replica_that_answers_nonsense_is_left_out_and_named(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.say(a=b"\xff\xff", b=counted(3))
        return await asking.ask(STATISTICS, pb.ModelStatisticsRequest())

    heard, told = playing(scenario, loop, TWO)
    assert told == counted(3)
    assert heard.trailers["servegate-partial"] == "a"


def test_when_nobody_can_be_asked_the_error_is_ours(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.scene.triton.close()
        return await asking.ask(STATISTICS, pb.ModelStatisticsRequest())

    heard, _ = playing(scenario, loop, ONE)
    assert heard.status == 14
    assert "replica a cannot be reached" in heard.trailers["grpc-message"]


def test_what_triton_refuses_is_refused_in_its_words(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        triton = asking.scene.triton
        triton.answers = False
        client = await asking.scene.client()
        client.call(1, b"\x0a\x01x", INDEX)
        await until(lambda: any(one.messages for one in triton.calls))
        triton.refuse(1, 12, "not supported")
        [heard] = await asking.scene.over(client, 1)
        return heard

    heard = playing(scenario, loop, ONE)
    assert heard.trailers["grpc-message"] == "not supported"
    assert heard.status == 12


@pytest.mark.parametrize("selector", ["2", " 02", "new"])
def test_a_version_is_asked_for_by_the_name_that_it_has_in_triton(loop: str, selector: str) -> None:
    two = target(2, "b", physical="m--0a1b2c3d")
    now = snapshot(view(target(1, "a"), two, labels={"new": 2}))

    async def scenario(asking: Asking) -> Any:
        asking.say(b=counted(4, name="m--0a1b2c3d", version="2"))
        _, told = await asking.ask(
            STATISTICS, pb.ModelStatisticsRequest(name="m", version=selector)
        )
        [asked] = asking.scene.tritons["b"].calls
        assert not asking.scene.tritons["a"].calls
        return told, pb.ModelStatisticsRequest.FromString(asked.messages[0])

    told, asked = playing(scenario, loop, now)
    assert told == counted(4, version="2")
    assert asked == pb.ModelStatisticsRequest(name="m--0a1b2c3d", version="2")


@pytest.mark.parametrize(
    ("name", "version", "status", "said"),
    [
        ("x", "", 3, "requested model 'x' is not available"),
        ("m", "9", 3, "requested model version is not available for model 'm'"),
        ("m", "old", 5, "Request for unknown model: 'm' label 'old' is not found"),
        ("m", "-1", 3, "invalid model version specified '-1'"),
    ],
)
def test_statistics_of_what_there_is_not_are_refused(
    loop: str, name: str, version: str, status: int, said: str
) -> None:
    async def scenario(asking: Asking) -> Any:
        return await asking.ask(STATISTICS, pb.ModelStatisticsRequest(name=name, version=version))

    heard, _ = playing(scenario, loop, ONE)
    assert heard.status == status
    assert heard.trailers["grpc-message"].startswith(said)


def test_a_model_is_ready_when_it_is_ready_anywhere(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.say(
            a=pb.RepositoryIndexResponse(models=[UNREADY]),
            b=pb.RepositoryIndexResponse(models=[READY]),
        )
        _, told = await asking.ask(INDEX, pb.RepositoryIndexRequest(ready=True))
        asked = [asking.scene.tritons[name].calls[0].messages for name in "ab"]
        return told, asked

    told, asked = playing(scenario, loop, TWO)
    assert told == pb.RepositoryIndexResponse(models=[READY])
    assert asked == [[b"\x10\x01"], [b"\x10\x01"]]


# --- keys -----------------------------------------------------------------------------------------


def guarded(now: Snapshot, *patterns: str) -> tuple[Snapshot, str]:
    key, words = Key.create(Role.PREDICTOR, patterns)
    keys = MappingProxyType({key.id: key})
    return dataclasses.replace(now, keys=keys, guarded=True), words


@pytest.mark.parametrize("method", [STATISTICS, INDEX, METADATA])
def test_nobody_is_told_anything_without_a_key(loop: str, method: str) -> None:
    now, _ = guarded(ONE, "*")

    async def scenario(asking: Asking) -> Any:
        heard, _ = await asking.ask(method, b"")
        assert not asking.scene.triton.peers
        return heard.status

    assert playing(scenario, loop, now) == 16


def test_models_that_a_key_may_not_see_are_left_out(loop: str) -> None:
    now, words = guarded(snapshot(*(view(target(1, "a", model=n), name=n) for n in "mn")), "m")
    other = pb.RepositoryIndexResponse.ModelIndex(name="n", version="1", state="READY")

    async def scenario(asking: Asking) -> Any:
        both = counted(1)
        both.MergeFrom(counted(2, name="n"))
        asking.say(a=both)
        _, statistics = await asking.ask(STATISTICS, b"", words)
        asking.say(a=pb.RepositoryIndexResponse(models=[READY, other]))
        _, index = await asking.ask(INDEX, b"", words)
        return statistics, index

    assert playing(scenario, loop, now) == (
        counted(1),
        pb.RepositoryIndexResponse(models=[READY]),
    )


@pytest.mark.parametrize("method", [STATISTICS, METADATA])
def test_a_model_that_a_key_may_not_see_is_like_one_that_there_is_not(
    loop: str, method: str
) -> None:
    now, words = guarded(snapshot(view(target(1, "a"), name="hidden")), "m")

    async def scenario(asking: Asking) -> list[dict[str, str]]:
        heard = []
        for name in ("hidden", "absent"):
            one, _ = await asking.ask(method, pb.ModelStatisticsRequest(name=name), words)
            said = one.trailers["grpc-message"].replace(name, "…")
            heard.append(one.trailers | {"grpc-message": said})
        return heard

    hidden, absent = playing(scenario, loop, now)
    assert hidden == absent


# --- metadata -------------------------------------------------------------------------------------


def described(name: str, *versions: str) -> pb.ModelMetadataResponse:
    made = pb.ModelMetadataResponse(name=name, versions=versions, platform="python")
    made.inputs.add(name="x", datatype="FP32", shape=[-1])
    return made


def test_metadata_name_the_versions_that_are_ready_anywhere(loop: str) -> None:
    now = snapshot(view(target(1, "a"), target(2, "b", physical="m--0a1b2c3d"), target(10, "a")))

    async def scenario(asking: Asking) -> Any:
        asking.say(a=described("m", "1", "10"), b=described("m--0a1b2c3d", "2"))
        told = []
        for version in ("", "2"):
            asked = pb.ModelMetadataRequest(name="m", version=version)
            heard, message = await asking.ask(METADATA, asked)
            told.append((message, heard.trailers["servegate-version"]))
        return told

    whole, second = playing(scenario, loop, now)
    assert whole[0] == described("m", "1", "2", "10")
    assert second == (described("m", "2"), "2; by=number; generation=1")


def test_metadata_come_from_another_replica_when_one_cannot_be_reached(loop: str) -> None:
    async def scenario(asking: Asking) -> Any:
        asking.say(b=described("m", "1"))
        asking.scene.tritons["a"].close()
        told = []
        for _ in range(2):
            told.append((await asking.ask(METADATA, pb.ModelMetadataRequest(name="m")))[1])
        return told

    assert playing(scenario, loop, TWO) == [described("m", "1")] * 2


def test_questions_are_counted(loop: str) -> None:
    async def scenario(asking: Asking) -> list[str]:
        asking.say(a=counted(1))
        await asking.ask(STATISTICS, b"")
        await asking.ask(STATISTICS, pb.ModelStatisticsRequest(name="x"))
        return sorted(
            sample.labels["code" if "calls" in sample.name else "error"]
            for family in asking.scene.plane.meters.registry.collect()
            for sample in family.samples
            if sample.name in ("servegate_calls_total", "servegate_errors_total")
        )

    assert playing(scenario, loop, ONE) == ["OK", "bad_request"]
