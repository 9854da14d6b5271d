"""The sender of HTTP lanes against a server that does what a script says."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from ports import free_ports
from workbench.loadtest.driving_scene import Ends

from serve.core.errors import Invalid
from serve.workbench.loadtest.engine.http import HttpSender, http_sender
from serve.workbench.loadtest.plan import Lane, LaneProtocol, Payload
from serve.workbench.loadtest.record import (
    BROKEN,
    MALFORMED,
    NOT_CONNECTED,
    RIGHT,
    TIMED_OUT,
    WRONG,
)

from .scripted import BODY, CLOSE, RESET, Act, Scripted, answer

PAYLOAD = Payload(b'{"inputs":[]}', (("Content-Type", "application/json"),))
End = tuple[str, str]  # outcome and decision


def lane(address: str, *payloads: Payload, path: str = "/v2/models/m/infer", **more: Any) -> Lane:
    return Lane("test", LaneProtocol.HTTP_JSON, address, path, payloads or (PAYLOAD,), **more)


@contextmanager
def sender(of: Lane, *, most: int = 8, trust: ssl.SSLContext | None = None) -> Iterator[HttpSender]:
    made = http_sender(of, most=most, timeout=5.0, clock=time.monotonic, trust=trust)
    with closing(made):
        yield made


def call(through: HttpSender, payload: Payload = PAYLOAD, *, count: int = 1) -> list[End]:
    """So many calls, one after the other."""
    told = []
    for _ in range(count):
        ends = Ends()
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
            ends = Ends()
            through.send(PAYLOAD, b'{"inputs":[7]', ends.done)  # in place of the payload's body
            ends.wait()
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
    assert body == b'{"inputs":[7]'


def test_what_no_request_may_hold_and_what_is_no_address_is_refused_before_the_run() -> None:
    refused: list[dict[str, Any]] = [
        {"path": "/v2/models/a b/infer"},
        {"path": "v2"},
        *({"headers": (pair,)} for pair in (("X", "a\r\nY: b"), ("X Y", "a"))),
        {"headers": (("Content-Length", "3"),)},
        *({"address": one} for one in ("nowhere", "localhost:http", ":80", "no.such.invalid:80")),
    ]
    for each in refused:
        with pytest.raises(Invalid), sender(lane(**{"address": "127.0.0.1:9"} | each)):
            pytest.fail(f"taken: {each}")


# --- connections ----------------------------------------------------------------------------------


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


def test_a_call_that_a_used_connection_swallows_is_made_once_again_and_no_third_time() -> None:
    acts: list[Act] = [(answer(),), (CLOSE,)]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=2) == [(RIGHT, "3")] * 2
        assert (len(server.calls), server.connections) == (3, 2)
    assert told_of((answer(),), (CLOSE,), (CLOSE,), count=2) == [(RIGHT, "3"), (BROKEN, "")]


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
        ends = Ends()
        through.send(PAYLOAD, PAYLOAD.body, ends.done)
        through.sweep(time.monotonic())
        assert ends.told == []
        through.sweep(time.monotonic() + 5.0)
        assert ends.told == [(TIMED_OUT, "")]
        assert call(through) == [(RIGHT, "3")]


def test_a_callers_own_fault_does_not_end_the_connection() -> None:
    def fail(outcome: str, decision: str, ended: float) -> None:
        raise ValueError("on purpose")

    with Scripted() as server, sender(lane(server.address)) as through:
        assert through.send(PAYLOAD, PAYLOAD.body, fail)
        with sender(lane(server.address)) as other:
            call(other, count=3)
        assert call(through) == [(RIGHT, "3")]


# --- answers --------------------------------------------------------------------------------------


def test_the_outcome_is_the_status_with_the_gateways_code_and_decision() -> None:
    decision = ("servegate-version", "2; by=split; generation=7")
    named = b'{"id":"9","model_name":"m","model_version":"12","outputs":[]}'
    rows = {
        answer(BODY, decision, ("servegate-request-id", "r1")): (RIGHT, decision[1]),
        answer(BODY, decision, ("servegate-request-id", "r2")): (RIGHT, decision[1]),
        answer(named): (RIGHT, "12"),
        answer(b"{}"): (RIGHT, ""),
        answer(b"{}", status=400): ("http_400", ""),
        answer(b"{}", ("Servegate-Error", "overloaded"), status=429): ("http_429:overloaded", ""),
        answer(b"{}", ("Location", "/"), status=302): ("http_302", ""),
    }
    acts = [(each,) for each in rows for _ in range(2)]
    assert told_of(*acts, count=len(acts)) == [end for end in rows.values() for _ in range(2)]


BY_CHUNKS = answer(chunks=[BODY[:5], BODY[5:30], BODY[30:]])
INTERIM = b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n"


def test_an_answer_may_come_in_pieces_of_any_size() -> None:
    forms = (answer(), BY_CHUNKS, INTERIM + answer(), INTERIM + BY_CHUNKS)
    acts = [in_pieces(form, size) for form in forms for size in (1000, 7, 1)]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=len(acts)) == [(RIGHT, "3")] * len(acts)
        assert server.connections == 1


def test_an_answer_may_end_with_its_connection() -> None:
    acts: list[Act] = [
        (b"HTTP/1.1 200 OK\r\n\r\n" + BODY[:9], 0.01, BODY[9:], CLOSE),  # without a length
        (answer(BODY, ("Connection", "close")), CLOSE),
    ]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        assert call(through, count=3) == [(RIGHT, "3")] * 3
        assert (len(server.calls), server.connections) == (3, 3)


def test_an_answer_that_is_cut_is_broken() -> None:
    decided = answer(b"{}", ("servegate-version", "2"))
    pieces = (b"", answer()[:20], answer()[:-3], BY_CHUNKS[:-3])
    cuts: list[Act] = [(RESET,), (answer()[:-3], 0.01, RESET), *((one, CLOSE) for one in pieces)]
    ends = [(BROKEN, "")] * len(cuts) + [(BROKEN, "2"), (RIGHT, "3")]
    assert told_of(*cuts, (decided[:-1], CLOSE), count=len(ends)) == ends


def test_what_is_no_answer_is_malformed_and_ends_its_connection() -> None:
    ok = b"HTTP/1.1 200 OK\r\n"
    wrong = [
        b"SSH-2.0-Open\r\n\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        ok + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
        ok + b"Content-Length: -2\r\n\r\n{}",
        ok + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}",
        ok + b"Transfer-Encoding: gzip\r\n\r\n{}",
        ok + b"Transfer-Encoding: chunked\r\n\r\nx\r\n{}",
        ok + b"no colon\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\n\r\n",
        ok + b"Inference-Header-Content-Length: x\r\nContent-Length: 0\r\n\r\n",
        INTERIM * 9 + answer(),
        b"HTTP/1.1 200 " + b"a" * 70_000,
    ]
    acts = [(data,) for data in wrong]
    with Scripted(acts=acts) as server, sender(lane(server.address)) as through:
        told = [(data[:60], call(through)) for data in wrong]
        assert told == [(data[:60], [(MALFORMED, "")]) for data in wrong]
        assert call(through) == [(RIGHT, "3")]
        assert server.connections == len(wrong) + 1


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


def test_a_lane_with_tls_keeps_its_connection_and_trusts_only_its_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))
    trust = ssl.create_default_context(cafile=str(authority.path))
    payload = Payload(b"x" * 3_000_000)
    large = answer(BODY + b" " * 1_000_000)
    with Scripted(tls=context, acts=[(large,)]) as server:
        with sender(lane(server.address, tls=True)) as untrusting:
            assert call(untrusting) == [(NOT_CONNECTED, "")]
        with sender(lane(server.address, payload, tls=True), trust=trust) as through:
            before = server.connections
            assert call(through, payload, count=3) == [(RIGHT, "3")] * 3
            assert server.connections == before + 1
            server.close_idle()
            assert call(through, payload) == [(RIGHT, "3")]
        assert [len(one.partition(b"\r\n\r\n")[2]) for one in server.calls] == [3_000_000] * 4
