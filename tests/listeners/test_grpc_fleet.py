"""Questions over gRPC that are about the fleet: every replica is asked, and one answer is given."""

import dataclasses
from types import MappingProxyType
from typing import Any

from builders import snapshot, target, view
from grpc_wire import Received
from listeners.grpc_scene import ONE, TWO, Scene, fleet, in_scene
from tritonclient.grpc import service_pb2 as pb

from serve.core.access import ApiKey, Role
from serve.core.snapshot import Snapshot
from serve.wire.statistics_grpc import INDEX, METADATA, STATISTICS

READY = pb.RepositoryIndexResponse.ModelIndex(name="m", version="1", state="READY")
ANSWERS: dict[str, Any] = {
    STATISTICS: pb.ModelStatisticsResponse,
    INDEX: pb.RepositoryIndexResponse,
    METADATA: pb.ModelMetadataResponse,
}
KEY, WORDS = ApiKey.create(Role.PREDICTOR, ("m",))
PHYSICAL = target(2, "b", physical="m--0a1b2c3d")


def guarded(now: Snapshot) -> Snapshot:
    return dataclasses.replace(now, keys=MappingProxyType({KEY.id: KEY}), guarded=True)


def counted(
    count: int, *, name: str = "m", version: str = "1", last: int = 0
) -> pb.ModelStatisticsResponse:
    one = pb.ModelStatistics(name=name, version=version, last_inference=last, inference_count=count)
    one.inference_stats.success.count = count
    one.batch_stats.add(batch_size=2).compute_infer.count = count
    return pb.ModelStatisticsResponse(model_stats=[one])


def answers(scene: Scene, **messages: Any) -> None:
    """What the replicas answer, whatever the question is."""
    for name, one in messages.items():
        body = one if isinstance(one, bytes) else one.SerializeToString()
        scene.tritons[name].says = lambda request, body=body: body


async def ask(scene: Scene, method: str, asked: Any = b"", key: str = "") -> tuple[Received, Any]:
    """What the client gets, and the message in it."""
    metadata = [("authorization", f"Bearer {key}")] if key else []
    body = asked if isinstance(asked, bytes) else asked.SerializeToString()
    heard = await scene.ask(body, method, metadata)
    [message] = heard.messages or [b""]
    return heard, ANSWERS[method].FromString(message)


@in_scene(TWO, services=fleet)
async def test_what_all_replicas_have_counted_is_added_up(scene: Scene) -> None:
    answers(scene, a=counted(3, last=7), b=counted(4, last=5))
    heard, total = await ask(scene, STATISTICS)
    assert total == counted(7, last=7)
    assert heard.trailers == {"grpc-status": "0"}
    await ask(scene, STATISTICS, pb.ModelStatisticsRequest(name="x"))
    nameless = dict.fromkeys(("model", "version", "route"), "") | {"protocol": "grpc"}
    count = scene.plane.count
    assert count("servegate_calls_total", **nameless, verb="stats", code="OK") == 1
    assert count("servegate_errors_total", **nameless, error="bad_request") == 1


@in_scene(TWO, services=fleet)
async def test_a_replica_without_a_usable_answer_is_left_out_and_named(scene: Scene) -> None:
    answers(scene, a=counted(3), b=b"\xff\xff")
    heard, told = await ask(scene, STATISTICS)
    assert (told, heard.trailers["servegate-partial"]) == (counted(3), "b")
    scene.tritons["b"].close()
    heard, told = await ask(scene, STATISTICS)
    assert (told, heard.trailers["servegate-partial"]) == (counted(3), "b")


@in_scene(ONE, services=fleet)
async def test_when_no_replica_can_be_asked_the_error_is_the_gateways(scene: Scene) -> None:
    scene.triton.ends = lambda peer, stream: scene.triton.refuse(stream, 12, "not supported", peer)
    heard, _ = await ask(scene, INDEX, b"\x0a\x01x")  # which is refused in Triton's words
    assert (heard.status, heard.trailers["grpc-message"]) == (12, "not supported")
    scene.triton.close()
    heard, _ = await ask(scene, STATISTICS)
    assert heard.status == 14
    assert "replica a cannot be reached" in heard.trailers["grpc-message"]


@in_scene(snapshot(view(target(1, "a"), PHYSICAL, labels={"new": 2})), services=fleet)
async def test_triton_is_asked_for_a_version_by_the_name_that_it_has_there(scene: Scene) -> None:
    answers(scene, b=counted(4, name="m--0a1b2c3d", version="2"))
    for selector in ("2", " 02", "new"):
        question = pb.ModelStatisticsRequest(name="m", version=selector)
        _, told = await ask(scene, STATISTICS, question)
        assert told == counted(4, version="2"), selector
        passed = pb.ModelStatisticsRequest.FromString(scene.tritons["b"].messages[-1])
        assert passed == pb.ModelStatisticsRequest(name="m--0a1b2c3d", version="2")
    assert scene.tritons["a"].calls == []


@in_scene(ONE, services=fleet)
async def test_statistics_of_what_does_not_exist_are_refused(scene: Scene) -> None:
    for name, version, status, said in (
        ("x", "", 3, "requested model 'x' is not available"),
        ("m", "9", 3, "requested model version is not available for model 'm'"),
        ("m", "old", 5, "Request for unknown model: 'm' label 'old' is not found"),
        ("m", "-1", 3, "invalid model version specified '-1'"),
    ):
        question = pb.ModelStatisticsRequest(name=name, version=version)
        heard, _ = await ask(scene, STATISTICS, question)
        assert heard.status == status, said
        assert heard.trailers["grpc-message"].startswith(said)


# --- keys -----------------------------------------------------------------------------------------


@in_scene(guarded(snapshot(*(view(target(1, "a", model=n), name=n) for n in "mn"))), services=fleet)
async def test_models_that_a_key_may_not_see_are_left_out(scene: Scene) -> None:
    both = counted(1)
    both.MergeFrom(counted(2, name="n"))
    answers(scene, a=both)
    assert (await ask(scene, STATISTICS, b"", WORDS))[1] == counted(1)
    other = pb.RepositoryIndexResponse.ModelIndex(name="n", version="1", state="READY")
    answers(scene, a=pb.RepositoryIndexResponse(models=[READY, other]))
    _, index = await ask(scene, INDEX, b"", WORDS)
    assert index == pb.RepositoryIndexResponse(models=[READY])


@in_scene(guarded(snapshot(view(target(1, "a"), name="hidden"))), services=fleet)
async def test_a_model_that_a_key_may_not_see_is_like_one_that_is_not_there(scene: Scene) -> None:
    for method in (STATISTICS, METADATA, INDEX):
        assert (await ask(scene, method))[0].status == 16, method
    for method in (STATISTICS, METADATA):
        heard = []
        for name in ("hidden", "absent"):
            one, _ = await ask(scene, method, pb.ModelStatisticsRequest(name=name), WORDS)
            said = one.trailers["grpc-message"].replace(name, "…")
            heard.append(one.trailers | {"grpc-message": said})
        assert heard[0] == heard[1], method
    assert scene.triton.peers == []


# --- metadata -------------------------------------------------------------------------------------


def described(name: str, *versions: str) -> pb.ModelMetadataResponse:
    made = pb.ModelMetadataResponse(name=name, versions=versions, platform="python")
    made.inputs.add(name="x", datatype="FP32", shape=[-1])
    return made


@in_scene(snapshot(view(target(1, "a"), PHYSICAL, target(10, "a"))), services=fleet)
async def test_metadata_name_the_versions_that_are_ready_anywhere(scene: Scene) -> None:
    answers(scene, a=described("m", "1", "10"), b=described("m--0a1b2c3d", "2"))
    _, whole = await ask(scene, METADATA, pb.ModelMetadataRequest(name="m"))
    assert whole == described("m", "1", "2", "10")
    heard, second = await ask(scene, METADATA, pb.ModelMetadataRequest(name="m", version="2"))
    assert second == described("m", "2")
    assert heard.trailers["servegate-version"] == "2; by=number; generation=1"


@in_scene(TWO, services=fleet)
async def test_metadata_come_from_another_replica_when_one_is_not_reached(scene: Scene) -> None:
    answers(scene, b=described("m", "1"))
    scene.tritons["a"].close()
    for _ in range(2):
        _, told = await ask(scene, METADATA, pb.ModelMetadataRequest(name="m"))
        assert told == described("m", "1")
