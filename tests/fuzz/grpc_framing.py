"""Messages of gRPC: cut at their borders, they are the same however the bytes are cut."""

from fuzz.cutting import ways

from serve.core.errors import BadRequest
from serve.wire.grpc_messages import PREFIX, PREFIX_SIZE, MessageCutter, read_prefix


def play(data: bytes) -> None:
    judged, is_bad = _messages(data)
    for _, pieces in ways(data):
        messages, whole, part = MessageCutter(), [], b""
        has_failed = False
        try:
            for piece in pieces:
                for prefix, bit, is_last in messages.cut(piece):
                    if prefix:
                        assert not part
                        read_prefix(prefix)
                        part = prefix
                    part += bytes(bit)
                    if is_last:
                        assert len(part) == PREFIX_SIZE + PREFIX.unpack_from(part)[1]
                        whole.append(part)
                        part = b""
        except BadRequest:
            has_failed = True
        assert whole == judged
        assert has_failed == is_bad
        if not is_bad:
            assert messages.is_between == (b"".join(judged) == data)


def _messages(data: bytes) -> tuple[list[bytes], bool]:
    """The whole messages, and whether a prefix behind them is none."""
    found = []
    while len(data) >= PREFIX_SIZE:
        if data[0] > 1:
            return found, True
        end = PREFIX_SIZE + int.from_bytes(data[1:PREFIX_SIZE], "big")
        if len(data) < end:
            return found, False
        found.append(data[:end])
        data = data[end:]
    return found, False
