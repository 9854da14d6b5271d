"""Clients: bytes of an HTTP/2 client, and what becomes of them at the Tritons.

For every input, however it is cut: nothing raises, nothing hangs, nothing is left behind; no window
is exceeded on either side; what a Triton gets is a good request whose model and version the
snapshot has; what the client gets is good HTTP/2, and each answer of it ends once.
"""

from fuzz.cutting import choice, ways
from fuzz.grpc_scene import GrpcScene
from fuzz.http2_peers import Seen

_CANCEL = ("forward", "absorb", "auto")


def play(data: bytes) -> None:
    cancel = _CANCEL[choice(data, len(_CANCEL))]
    for way, pieces in ways(data):
        scene = GrpcScene(is_narrow=way == "cut", cancel=cancel)
        for piece in pieces:
            if not scene.say(piece):
                break
        scene.leave()
        for seen in scene.watch.streams.values():
            _check_answer(seen)
        good = [one for one in scene.watch.streams.values() if _status(one) == b"0"]
        assert sum(b"servegate-version" in dict(one.heads[-1]) for one in good) <= (
            scene.executed + len(scene.streamed) + _questions(scene)
        )


def _questions(scene: GrpcScene) -> int:
    """Calls that Tritons have answered and that are no inference."""
    return sum(len(one.watch.streams) for one in scene.tritons) - scene.executed


def _status(seen: Seen) -> bytes:
    return dict(seen.heads[-1]).get(b"grpc-status", b"") if seen.heads else b""


def _check_answer(seen: Seen) -> None:
    """A head, then messages, then trailers with one status; or an answer of HTTP alone."""
    if not seen.heads:
        assert seen.was_reset or not seen.data
        return
    first = dict(seen.heads[0])
    assert b":status" in first, first
    assert len(seen.heads) <= 2, seen.heads
    if len(seen.heads) == 2:
        assert b":status" not in dict(seen.heads[1])
    if seen.has_ended and first[b":status"] == b"200":
        names = [name for name, _ in seen.heads[-1]]
        assert names.count(b"grpc-status") == 1, seen.heads
        if _status(seen) == b"0":
            _check_messages(seen.data)


def _check_messages(data: bytes) -> None:
    while data:
        size = 5 + int.from_bytes(data[1:5], "big")
        assert 5 <= size <= len(data), "a cut message"
        data = data[size:]
