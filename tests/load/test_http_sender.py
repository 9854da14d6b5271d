"""The sender of HTTP lanes against a server that does what a script says."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from certificates import Authority
from gevent.event import Event
from ports import free_ports

from serve.core.errors import Invalid
from serve.load.engine.http import HttpSender, http_sender
from serve.load.plan import Lane, Payload, Protocol
from serve.load.recording import BROKEN, MALFORMED, NOT_CONNECTED, RIGHT, TIMED_OUT, WRONG

from .scripted import BODY, CLOSE, RESET, Act, Scripted, answer

PATIENCE = 20.0  # seconds; a bound
PAYLOAD = Payload(b'{"inputs":[]}', (("Content-Type", "application/json"),))
End = tuple[str, str]  # outcome and decision


def lane(
    address: str,
    *payloads: Payload,
    protocol: Protocol = Protocol.HTTP_JSON,
    path: str = "/v2/models/m/infer",
    headers: tuple[tuple[str, str], ...] = (),
    tls: bool = False,
) -> Lane:
    return Lane("test", protocol, address, path, payloads or (PAYLOAD,), headers=headers, tls=tls)


@contextmanager
def sender(of: Lane, *, most: int = 8, trust: ssl.SSLContext | None = None) -> Iterator[HttpSender]:
    made = http_sender(of, most=most, timeout=5.0, clock=time.monotonic, trust=trust)
    with closing(made):
        yield made


class Ends:
    """What was told of calls, in the order of their ends."""

    def __init__(self, count: int) -> None:
        self.told: list[End] = []
        self._count = count
        self._all = Event()

    def done(self, outcome: str, decision: str, ended: float) -> None:
        self.told.append((outcome, decision))
        if len(self.told) == self._count:
            self._all.set()

    def wait(self) -> list[End]:
        assert self._all.wait(PATIENCE), self.told
        return self.told


def call(through: HttpSender, payload: Payload = PAYLOAD, *, count: int = 1) -> list[End]:
    """So many calls, one after the other."""
    told = []
    for _ in range(count):
        ends = Ends(1)
        assert through.send(payload, payload.body, ends.done)
        told += ends.wait()
    return told


def told_of(*acts: Act, payload: Payload = PAYLOAD, count: int = 1) -> list[End]:
    """What is told of calls one after the other, to a server with this script."""
    with Scripted(acts=acts) as server, sender(lane(server.address, payload)) as through:
        return call(through, payload, count=count)


def in_pieces(data: bytes, size: int) -> Act:
    """Written piece by piece, with a moment between them."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return [step for piece in pieces for step in (piece, 0.002)]


# --- requests -------------------------------------------------------------------------------------


def test_a_request_is_one_head_with_everything_and_the_body() -> None:
    with Scripted() as server:
        keyed = lane(server.address, headers=(("Authorization", "Bearer k"),))
        with sender(keyed) as through:
            call(through)
        head, _, body = server.calls[0].partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    assert first == "POST /v2/models/m/infer HTTP/1.1"
    assert sorted(lines) == [
        "Accept-Encoding: identity",
        "Authorization: Bearer k",
        "Content-Length: 13",
        "Content-Type: application/json",
        f"Host: {server.address}",
    ]
    assert body == PAYLOAD.body


def test_a_body_of_its_own_goes_out_in_place_of_the_payloads() -> None:
    with Scripted() as server, sender(lane(server.address)) as through:
        ends = Ends(1)
        through.send(PAYLOAD, b'{"inputs":[7]', ends.done)
        ends.wait()
        assert server.calls[0].endswith(b'Content-Length: 13\r\n\r\n{"inputs":[7]')


def test_a_large_body_arrives_whole() -> None:
    payload = Payload(bytes(range(256)) * 40_000)
    with Scripted() as server, sender(lane(server.address, payload)) as through:
        assert call(through, payload, count=2) == [(RIGHT, "3")] * 2
        assert all(one.endswith(payload.body) for one in server.calls)


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/v2/models/a b/infer", ()),
        ("v2", ()),
        ("/v2", (("X", "a\r\nY: b"),)),
        ("/v2", (("X Y", "a"),)),
        ("/v2", (("Content-Length", "3"),)),
    ],
)
def test_what_no_request_may_hold_is_refused_before_the_run(
    path: str, headers: tuple[tuple[str, str], ...]
) -> None:
    with pytest.raises(Invalid), sender(lane("127.0.0.1:9", path=path, headers=headers)):
        pass


@pytest.mark.parametrize("address", ["nowhere", "localhost:http", ":80", "no.such.host.invalid:80"])
def test_an_address_that_cannot_be_used_is_refused_before_the_run(address: str) -> None:
    with pytest.raises(Invalid, match=r"no address|cannot be found"), sender(lane(address)):
        pass


# --- connections ----------------------------------------------------------------------------------


def test_calls_one_after_the_other_share_a_connection() -> None:
    with Scripted() as server, sender(lane(server.address)) as through:
        assert call(through, count=20) == [(RIGHT, "3")] * 20
        assert (len(server.calls), server.connections) == (20, 1)


def test_no_more_calls_than_allowed_are_in_flight() -> None:
    with Scripted(service=0.05) as server, sender(lane(server.address), most=3) as through:
        ends = Ends(3)
        started = [through.send(PAYLOAD, PAYLOAD.body, ends.done) for _ in range(5)]
        assert started == [True, True, True, False, False]
        assert ends.told == []
        ends.wait()
        assert call(through) == [(RIGHT, "3")]
        assert server.connections == 3


def test_a_connection_that_the_server_closed_while_idle_is_replaced() -> None:
    with Scripted() as server, sender(lane(server.address)) as through:
        call(through)
        server.close_idle()
        assert call(through) == [(RIGHT, "3")]
        assert (len(server.calls), server.connections) == (2, 2)


def test_a_call_that_a_used_connection_swallows_is_made_once_again() -> None:
    acts: list[Act] = [(answer(),), (CLOSE,)]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=2) == [(RIGHT, "3")] * 2
        assert (len(server.calls), server.connections) == (3, 2)


def test_a_call_is_not_made_a_third_time() -> None:
    assert told_of((answer(),), (CLOSE,), (CLOSE,), count=2) == [(RIGHT, "3"), (BROKEN, "")]


def test_a_server_that_says_that_it_closes_gets_no_further_call_on_that_connection() -> None:
    last = answer(BODY, ("Connection", "close"))
    with Scripted(acts=[(last, CLOSE)]) as server, sender(lane(server.address)) as through:
        assert call(through, count=2) == [(RIGHT, "3")] * 2
        assert (len(server.calls), server.connections) == (2, 2)


def test_bytes_that_nobody_asked_for_end_an_idle_connection() -> None:
    acts: list[Act] = [(answer(), 0.01, answer(status=408))]
    with Scripted(acts=acts, service=0.05) as server, sender(lane(server.address)) as through:
        call(through)
        with sender(lane(server.address)) as other:
            call(other)  # while it waits, the loop sees the bytes
        assert call(through) == [(RIGHT, "3")]
        assert server.connections == 3


def test_nobody_listening_is_an_outcome() -> None:
    with sender(lane(f"127.0.0.1:{free_ports(1)[0]}")) as through:
        assert call(through, count=2) == [(NOT_CONNECTED, "")] * 2


def test_a_name_with_several_addresses_is_tried_until_one_answers() -> None:
    with Scripted() as server:  # on 127.0.0.1 alone, and localhost may be ::1 as well
        port = server.address.rpartition(":")[2]
        with sender(lane(f"localhost:{port}")) as through:
            assert call(through, count=2) == [(RIGHT, "3")] * 2


def test_a_call_over_its_time_ends_when_the_sender_is_swept() -> None:
    with Scripted(acts=[(answer(),), ()]) as server, sender(lane(server.address)) as through:
        call(through)
        ends = Ends(1)
        through.send(PAYLOAD, PAYLOAD.body, ends.done)
        through.sweep(time.monotonic())
        assert ends.told == []
        through.sweep(time.monotonic() + 5.0)
        assert ends.told == [(TIMED_OUT, "")]
        assert call(through) == [(RIGHT, "3")]


def test_calls_in_flight_are_not_told_when_the_sender_closes() -> None:
    with Scripted(service=0.01) as server:
        ends = Ends(1)
        with sender(lane(server.address)) as through:
            through.send(PAYLOAD, PAYLOAD.body, ends.done)
        with sender(lane(server.address)) as other:
            call(other, count=3)
        assert ends.told == []


def test_a_callers_own_fault_does_not_end_the_connection() -> None:
    def fail(outcome: str, decision: str, ended: float) -> None:
        raise ValueError("on purpose")

    with Scripted() as server, sender(lane(server.address)) as through:
        assert through.send(PAYLOAD, PAYLOAD.body, fail)
        with sender(lane(server.address)) as other:
            call(other, count=3)
        assert call(through) == [(RIGHT, "3")]


# --- answers --------------------------------------------------------------------------------------


def test_the_gateways_decision_is_told_as_it_came() -> None:
    decision = "2; by=split; generation=7"
    acts = [
        (answer(BODY, ("servegate-version", decision), ("servegate-request-id", f"r{number}")),)
        for number in range(3)
    ]
    assert told_of(*acts, count=3) == [(RIGHT, decision)] * 3


def test_a_bare_tritons_answer_tells_its_version() -> None:
    other = b'{"id":"9","model_name":"m","model_version":"12","outputs":[]}'
    assert told_of((answer(other),), (answer(b"{}"),), count=2) == [(RIGHT, "12"), (RIGHT, "")]


@pytest.mark.parametrize(
    ("status", "headers", "outcome"),
    [
        (200, (), RIGHT),
        (400, (), "http_400"),
        (429, (("Servegate-Error", "overloaded"),), "http_429:overloaded"),
        (302, (("Location", "/"),), "http_302"),
    ],
)
def test_the_outcome_is_the_status_and_the_gateways_code(
    status: int, headers: tuple[tuple[str, str], ...], outcome: str
) -> None:
    said = answer(b"{}", *headers, status=status)
    assert told_of((said,), (said,), count=2) == [(outcome, "")] * 2


BY_CHUNKS = answer(chunks=[BODY[:5], BODY[5:30], BODY[30:]])
INTERIM = b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n"


@pytest.mark.parametrize(
    "data", [answer(), BY_CHUNKS, INTERIM + answer(), INTERIM + BY_CHUNKS], ids=str
)
@pytest.mark.parametrize("size", [1000, 7, 1])
def test_an_answer_may_come_in_pieces_of_any_size(data: bytes, size: int) -> None:
    acts = [in_pieces(data, size)] * 2
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=3) == [(RIGHT, "3")] * 3
        assert server.connections == 1


def test_the_end_of_the_connection_ends_an_answer_without_length() -> None:
    acts: list[Act] = [(b"HTTP/1.1 200 OK\r\n\r\n" + BODY[:9], 0.01, BODY[9:], CLOSE)]
    assert told_of(*acts, count=2) == [(RIGHT, "3")] * 2


def test_a_large_answer_is_read_whole() -> None:
    head = BODY[:-1] + b',"x":"'
    assert told_of((answer(head + b"a" * 3_000_000),), count=2) == [(RIGHT, "3")] * 2


DECIDED = answer(b"{}", ("servegate-version", "2"))


@pytest.mark.parametrize(
    ("act", "decision"),
    [
        ((CLOSE,), ""),
        ((RESET,), ""),
        ((answer()[:20], CLOSE), ""),
        ((answer()[:-3], CLOSE), ""),
        ((DECIDED[:-1], CLOSE), "2"),
        ((BY_CHUNKS[:-3], CLOSE), ""),
        ((answer()[:-3], 0.01, RESET), ""),
    ],
)
def test_an_answer_that_is_cut_is_broken(act: Act, decision: str) -> None:
    assert told_of(act, count=2) == [(BROKEN, decision), (RIGHT, "3")]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-Open\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n{}",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nInference-Header-Content-Length: x\r\nContent-Length: 0\r\n\r\n",
        INTERIM * 9 + answer(),
        b"HTTP/1.1 200 " + b"a" * 70_000,
    ],
    ids=lambda data: str(data[:60]),
)
def test_what_is_no_answer_is_malformed_and_ends_its_connection(data: bytes) -> None:
    with Scripted(acts=[(data,)]) as server, sender(lane(server.address)) as through:
        assert call(through, count=2) == [(MALFORMED, ""), (RIGHT, "3")]
        assert server.connections == 2


def test_what_stands_behind_an_answer_ends_its_connection() -> None:
    acts: list[Act] = [(answer() + b"x",), (BY_CHUNKS + b"HTTP/1.1 ",)]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=3) == [(RIGHT, "3")] * 3
        assert server.connections == 3


def test_answers_are_checked_where_the_payload_says_what_to_expect() -> None:
    payload = Payload(b"{}", expected=(1,), output="y")
    scores = (
        b'{"model_version":"3","outputs":[{"name":"y","datatype":"FP32","shape":[1,2],"data":%b}]}'
    )
    right, wrong = answer(scores % b"[0.1,0.9]"), answer(scores % b"[0.9,0.1]")
    acts: list[Act] = [(right,), (wrong,), in_pieces(wrong, 20), (answer(b"{"),)]
    told = told_of(*acts, (answer(b"{}", status=500),), payload=payload, count=5)
    assert [outcome for outcome, _ in told] == [RIGHT, WRONG, WRONG, MALFORMED, "http_500"]


def test_an_answer_that_comes_before_the_request_has_left_counts() -> None:
    payload = Payload(b"x" * 30_000_000)
    refused = answer(b"{}", ("Connection", "close"), status=413)
    with (
        Scripted(eager=True, acts=[(refused,)]) as server,
        sender(lane(server.address, payload)) as through,
    ):
        assert call(through, payload) == [("http_413", "")]


# --- TLS ------------------------------------------------------------------------------------------


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def server_side(authority: Authority) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    return context


def test_a_lane_with_tls_keeps_its_connection(
    authority: Authority, server_side: ssl.SSLContext
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.path))
    payload = Payload(b"x" * 3_000_000)
    large = answer(BODY + b" " * 1_000_000)
    with Scripted(tls=server_side, acts=[(large,)]) as server:
        with sender(lane(server.address, payload, tls=True), trust=trust) as through:
            assert call(through, payload, count=3) == [(RIGHT, "3")] * 3
        assert all(one.endswith(payload.body) for one in server.calls)
        assert server.connections == 1


def test_a_server_that_closes_a_connection_with_tls_gets_another(
    authority: Authority, server_side: ssl.SSLContext
) -> None:
    trust = ssl.create_default_context(cafile=str(authority.path))
    with Scripted(tls=server_side) as server:
        with sender(lane(server.address, tls=True), trust=trust) as through:
            call(through)
            server.close_idle()
            assert call(through) == [(RIGHT, "3")]
        assert server.connections == 2


def test_a_certificate_that_nobody_trusts_is_no_connection(server_side: ssl.SSLContext) -> None:
    with Scripted(tls=server_side) as server:
        with sender(lane(server.address, tls=True)) as through:
            assert call(through) == [(NOT_CONNECTED, "")]
        assert server.calls == []
