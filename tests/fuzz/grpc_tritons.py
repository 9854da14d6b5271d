"""Tritons: bytes of an HTTP/2 server, and what a client makes of what the gateway makes of them.

Two good calls are under way, of a plain model and of a renamed one. A client takes for a good
answer only what the Triton ended with `grpc-status: 0`; each call ends once; nothing is left.
Files that begin with SETTINGS are all that the Triton says, to others SETTINGS are added.
"""

from struct import pack

import hpack
from fuzz.cutting import choice, ways
from fuzz.grpc_scene import GrpcScene
from fuzz.http2_peers import DATA, HEADERS, MORE, PREFACE, SETTINGS, Seen, frame, frames
from tritonclient.grpc import service_pb2

_CANCEL = ("forward", "absorb")
_PATH = b"/inference.GRPCInferenceService/ModelInfer"
_HEAD = (
    b"\x83\x86\x04%c%b\x41\x01x\x00\x02te\x08trailers\x00\x0ccontent-type\x10application/grpc"
    % (
        len(_PATH),
        _PATH,
    )
)


def play(data: bytes) -> None:
    cancel = _CANCEL[choice(data, len(_CANCEL))]
    begins_well = data[:5] != b"\0\0\x06\x04\x00"  # which is how a file says its own settings
    could = _good_ends(data)
    for way, pieces in ways(data):
        scene = GrpcScene(
            is_narrow=way == "cut", cancel=cancel, script=pieces, begins_well=begins_well
        )
        scene.say(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, 1, 0))
        for number, model in ((1, "m"), (3, "r")):
            asked = service_pb2.ModelInferRequest(model_name=model, id="x").SerializeToString()
            message = pack(">BI", 0, len(asked)) + asked
            scene.say(frame(HEADERS, 4, number, _HEAD) + frame(DATA, 1, number, message))
        scene.leave_after_answers()
        good = 0
        for seen in scene.watch.streams.values():
            good += _check(seen)
        assert good <= could * len(scene.tritons), f"{good} good answers out of {could}"


def _check(seen: Seen) -> bool:
    """Whether the client has a good answer; each call has ended in one way or another."""
    assert seen.has_ended or seen.was_reset, "a call without an end"
    if not seen.has_ended:
        return False
    assert len(seen.heads) in (1, 2), "an answer of more than a head and trailers"
    assert b":status" in dict(seen.heads[0]), "an answer without a head"
    assert b":status" not in dict(seen.heads[-1]) or len(seen.heads) == 1, "two heads"
    return dict(seen.heads[-1]).get(b"grpc-status") == b"0"


def _good_ends(data: bytes) -> int:
    """How many header blocks in the bytes end a stream and say `grpc-status: 0`, at most."""
    found, _ = frames(data)
    decoder, block, count, flags = hpack.Decoder(), b"", 0, 0
    for kind, bits, _, payload in found:
        if kind == HEADERS:
            start = (1 if bits & 8 else 0) + (5 if bits & 0x20 else 0)
            end = len(payload) - (payload[0] if bits & 8 and payload else 0)
            block, flags = payload[start:end], bits
        elif kind == MORE:
            block += payload
        else:
            continue
        if bits & 4:
            try:
                head = dict(decoder.decode(block, raw=True))
            except hpack.HPACKError:
                return count
            count += bool(flags & 1) and head.get(b"grpc-status") == b"0"
    return count
