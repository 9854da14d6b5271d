"""HTTP/2 without I/O: any split of the bytes is the same, and windows are never overdrawn."""

import itertools
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from serve.wire import http2
from serve.wire.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    ConnectionFault,
    frame,
    head_frames,
    settings,
    window_update,
)
from serve.wire.http2_flow import FlowBoard
from serve.wire.http2_link import Link
from serve.wire.http2_stream import STREAM_WINDOW, Piece, Stream

Event = tuple[str, int, bytes, int]


class Recorded(Stream):
    """A stream that writes down what comes."""

    def on_data(self, piece: Piece, end: int) -> None:
        assert isinstance(self.link, Recorder)
        self.link.events.append(("data", self.id, bytes(piece), end))

    def on_reset(self, code: int) -> None:
        assert isinstance(self.link, Recorder)
        self.link.events.append(("reset", self.id, b"", code))


class Recorder(Link):
    """A link that opens a stream for every head and writes down what comes."""

    def __init__(self) -> None:
        super().__init__(FlowBoard(), frame=1 << 18, head=1 << 14, continuations=9)
        self.events: list[Event] = []
        self.sent = b""

    def on_head(self, number: int, block: bytes, end: int, data: bytes, after: int) -> int:
        self.events.append(("head", number, block, end))
        if number > self.last_id:
            self.last_id = number
            self.streams[number] = Recorded(self, number)
        return after

    def on_goaway(self, last: int, code: int) -> None:
        self.events.append(("goaway", last, b"", code))

    def flush(self) -> None:
        self.sent += b"".join(self.out)
        self.out, self.out_size = [], 0

    def on_fault(self, error: Exception) -> None:
        raise error

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """What was sent: type, flags, stream, payload."""
        self.flush()
        found, rest = [], self.sent
        while rest:
            size = int.from_bytes(rest[:3], "big")
            number = int.from_bytes(rest[5:9], "big")
            found.append((rest[3], rest[4], number, rest[9 : 9 + size]))
            rest = rest[9 + size :]
        self.sent = b""
        return found


def joined(events: list[Event]) -> list[Event]:
    """Pieces of DATA of one stream put together: how they are cut is no matter."""
    found: list[Event] = []
    for kind, number, body, end in events:
        if kind == "data" and found and found[-1][:2] == ("data", number) and not found[-1][3]:
            found[-1] = (kind, number, found[-1][2] + body, end)
        else:
            found.append((kind, number, body, end))
    return found


@st.composite
def conversations(draw: st.DrawFn) -> bytes:
    """Valid frames of a client on two streams, padded and continued here and there."""
    out = []
    for number in (1, 3):
        block = draw(st.binary(max_size=40))
        cut = draw(st.integers(0, len(block)))
        if draw(st.booleans()):
            out.append(frame(HEADERS, 0, number, block[:cut]))
            out.append(frame(CONTINUATION, END_HEADERS, number, block[cut:]))
        else:
            out.append(frame(HEADERS, END_HEADERS, number, block))
    for _ in range(draw(st.integers(0, 6))):
        number, body = draw(st.sampled_from([1, 3])), draw(st.binary(max_size=50))
        padding = draw(st.integers(0, 20))
        if draw(st.booleans()):
            body = bytes((padding,)) + body + bytes(padding)
            out.append(frame(DATA, PADDED, number, body))
        else:
            out.append(frame(DATA, 0, number, body))
        if draw(st.booleans()):
            out.append(frame(http2.PING, 0, 0, bytes(8)))
        if draw(st.booleans()):
            out.append(frame(77, 0xFF, 5, draw(st.binary(max_size=30))))
    for number in (1, 3):
        out.append(frame(DATA, END_STREAM, number, draw(st.binary(max_size=9))))
    return b"".join(out)


CUTS = st.one_of(st.lists(st.integers(0, 600), max_size=30), st.just(list(range(2000))))


@given(conversations(), CUTS)
def test_any_split_of_the_bytes_is_the_same(whole: bytes, cuts: list[int]) -> None:
    at_once, in_pieces = Recorder(), Recorder()
    at_once.receive(whole)
    borders = sorted({0, len(whole), *(cut % (len(whole) + 1) for cut in cuts)})
    for start, stop in itertools.pairwise(borders):
        in_pieces.receive(whole[start:stop])
    assert joined(in_pieces.events) == joined(at_once.events)
    assert in_pieces.frames() == at_once.frames()
    assert in_pieces.credit == at_once.credit
    credits = [[s.credit + s.owed for s in link.streams.values()] for link in (at_once, in_pieces)]
    assert credits[0] == credits[1]


@given(st.binary(max_size=200))
def test_garbage_is_a_fault_or_waits_for_more(garbage: bytes) -> None:
    link = Recorder()
    try:
        link.receive(garbage)
    except ConnectionFault as fault:
        assert 0 < fault.code <= 13


@dataclass
class Model:
    """What a peer may still be sent, and what it got."""

    connection: int = 65_535
    streams: dict[int, int] = field(default_factory=lambda: {1: 65_535, 3: 65_535})
    got: dict[int, bytes] = field(default_factory=lambda: {1: b"", 3: b""})

    def take(self, link: Recorder) -> None:
        for kind, _, number, payload in link.frames():
            if kind == DATA:
                assert len(payload) <= 1 << 14
                self.connection -= len(payload)
                self.streams[number] -= len(payload)
                self.got[number] += payload
                if payload:
                    assert self.connection >= 0
                    assert self.streams[number] >= 0


STEPS = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([1, 3]), st.integers(0, 70_000)),
    st.tuples(st.just("window"), st.sampled_from([0, 1, 3]), st.integers(1, 50_000)),
    st.tuples(st.just("initial"), st.just(0), st.integers(0, 100_000)),
    st.tuples(st.just("choke"), st.just(0), st.integers(0, 1)),
)


@given(st.lists(STEPS, max_size=40))
def test_windows_are_never_overdrawn_and_nothing_is_lost(
    steps: list[tuple[str, int, int]],
) -> None:
    link, model, initial = opened(), Model(), 65_535
    sent = {1: b"", 3: b""}
    for what, number, size in steps:
        if what == "send":
            body = bytes((len(sent[number]) + at) & 0xFF for at in range(size))
            sent[number] += body
            link.send_data(link.streams[number], body)
        elif what == "window":
            link.receive(window_update(number, size))
            if number:
                model.streams[number] += size
            else:
                model.connection += size
        elif what == "initial":
            link.receive(settings({http2.INITIAL_WINDOW_SIZE: size}))
            for one in model.streams:
                model.streams[one] += size - initial
            initial = size
        else:
            link.is_choked = bool(size)
            link.pump()
        model.take(link)
        waiting = {n: sent[n][len(model.got[n]) :] for n in sent}
        assert link.board.held == sum(map(len, waiting.values()))
        for one in sent:
            assert sent[one].startswith(model.got[one])
            room = model.connection > 0 and model.streams[one] > 0 and not link.is_choked
            assert not (room and waiting[one])


def opened() -> Recorder:
    link = Recorder()
    link.receive(head_frames(1, b"", 0, 1 << 14) + head_frames(3, b"", 0, 1 << 14))
    return link


@given(st.lists(st.tuples(st.integers(0, 40_000), st.booleans()), max_size=60))
def test_credit_is_given_back_for_what_is_done_with_and_no_more(
    pieces: list[tuple[int, bool]],
) -> None:
    link = opened()
    stream, window, waiting = link.streams[1], STREAM_WINDOW, 0
    for size, is_done in pieces:
        if size > window:
            break
        link.receive(frame(DATA, 0, 1, bytes(size)))
        window -= size
        waiting += size
        if is_done:
            stream.consume(waiting)
            waiting = 0
        for kind, _, number, payload in link.frames():
            if kind == http2.WINDOW_UPDATE and number == 1:
                window += http2.number(payload)
        assert window == stream.credit
        assert window + waiting + stream.owed == STREAM_WINDOW


def test_more_bytes_done_with_than_came_widen_no_window() -> None:
    link = opened()
    stream = link.streams[1]
    stream.consume(10 * STREAM_WINDOW)
    assert stream.credit == STREAM_WINDOW
    assert not link.frames()


def test_a_forgotten_stream_holds_nothing() -> None:
    link = opened()
    link.send_data(link.streams[1], bytes(100_000), END_STREAM)
    link.send_head(link.streams[3], b"\x88")
    link.send_data(link.streams[3], bytes(100_000))
    link.send_head(link.streams[3], b"trailers", END_STREAM)
    assert link.board.held == 200_000 - 65_535
    for stream in tuple(link.streams.values()):
        link.forget(stream)
    assert link.board.held == 0
    link.receive(window_update(0, 1 << 20))
    link.frames()
    assert not link.out


def test_a_small_piece_of_a_large_read_is_copied_when_it_has_to_wait() -> None:
    link = opened()
    link.is_choked = True
    read = memoryview(bytes(100_000))
    link.send_data(link.streams[1], read[:5000])
    link.send_data(link.streams[3], read[5000:])
    [small] = link.streams[1].queue or ()
    [large] = link.streams[3].queue or ()
    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)


def test_a_block_is_one_or_several_frames() -> None:
    for end in (0, END_STREAM):
        for size, count in ((0, 1), (10, 1), (16_384, 1), (16_385, 2), (50_000, 4)):
            link = Recorder()
            link.receive(frame(HEADERS, END_HEADERS, 1, b""))
            block = bytes(index & 0x7F for index in range(size))
            link.send(head_frames(1, block, end, 16_384))
            kinds, flags, _, payloads = zip(*link.frames(), strict=True)
            assert b"".join(payloads) == block, (size, end)
            assert kinds == (HEADERS, *[CONTINUATION] * (count - 1)), (size, end)
            assert [bool(one & END_HEADERS) for one in flags] == [False] * (count - 1) + [True]
            assert flags[0] & END_STREAM == end, (size, end)
