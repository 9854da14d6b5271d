"""Models that sleep behind the gRPC listener, and how they wake."""

import dataclasses

from builders import snapshot, target, until, view
from grpc_wire import DATA, END_STREAM, Client, Scene, frame, settings, window
from tritonclient.grpc import service_pb2

from serve.core.routes import Split
from serve.core.snapshot import Snapshot

SLEEPING = dataclasses.replace(view(asleep=True), split=Split.of({1: 100}))
BESIDE = view(target(1, "b", model="n"), name="n")
ASLEEP = snapshot(SLEEPING, BESIDE, replicas=("a",))
AWAKE = snapshot(view(target(1, "a")), BESIDE)
UNAVAILABLE, DEADLINE_EXCEEDED = 14, 4
WIDE = settings(window=1 << 24) + window(0, 1 << 24)  # what a replica takes without reading on


async def waiting(scene: Scene, count: int = 1) -> None:
    """Until so many calls of the model wait."""
    await until(lambda: scene.plane.waking.waiting == ({"m": count} if count else {}))


def wake(scene: Scene, now: Snapshot = AWAKE) -> None:
    """Its pool has a replica."""
    scene.plane.wake(now)
    scene.sweep()


def give_up(scene: Scene) -> None:
    """The time for which a call may wait is over."""
    scene.plane.clock.now += 10
    scene.plane.gateway.sweep()
    scene.sweep()


def asked(scene: Scene, name: str = "a") -> list[bytes]:
    """The messages that came to a replica."""
    return [one for call in scene.tritons[name].calls for one in call.messages]


def models(messages: list[bytes]) -> list[tuple[str, str, int]]:
    """What they ask: model, version, bytes of tensors."""
    read = [service_pb2.ModelInferRequest.FromString(one) for one in messages]
    return [(one.model_name, one.model_version, len(one.raw_input_contents[0])) for one in read]


def send(client: Client, data: bytes, *, ends: bool, stream: int = 1) -> None:
    """Bytes of messages in frames, which may be the last ones."""
    for at in range(0, len(data), 1 << 14):
        is_last = ends and at + (1 << 14) >= len(data)
        client.send(frame(DATA, END_STREAM * is_last, stream, data[at : at + (1 << 14)]))
