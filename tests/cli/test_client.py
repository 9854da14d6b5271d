"""The admin API's client against a real HTTP server, and the exit codes of its errors."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import unquote

import pytest
from cli.http_servers import Request, answering
from refusals import refusal

from serve.cli.client import AdminClient, segment
from serve.cli.output import complain, exit_code, say, table
from serve.core.errors import (
    BadRequest,
    CannotStart,
    CheckFailed,
    Conflict,
    DeadlineExceeded,
    Forbidden,
    Invalid,
    NoControl,
    NotFound,
    ServegateError,
    TritonMissing,
    Unauthenticated,
    Unavailable,
    UnknownModel,
)


@contextmanager
def control(status: int, body: bytes, asked: list[Request]) -> Iterator[str]:
    """A control plane that gives one answer to everything."""

    def answer(request: Request) -> tuple[int, bytes]:
        asked.append(request)
        return status, body

    with answering(answer) as url:
        yield f"{url}/"


def error_body(code: str = "invalid") -> bytes:
    return json.dumps(
        {"what": "it broke", "why": "a reason", "try_this": "that", "code": code}
    ).encode()


def refused(status: int, body: bytes) -> ServegateError:
    """The error that an answer becomes."""
    with control(status, body, []) as url, pytest.raises(ServegateError) as raised:
        AdminClient(url).get("/api/models")
    return raised.value


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_json_goes_in_and_json_comes_out(method: str) -> None:
    asked: list[Request] = []
    arguments = () if method in ("GET", "DELETE") else ({"split": {"1": 1}},)
    with control(200, b'{"generation": 7}', asked) as url:
        answer = getattr(AdminClient(url), method.lower())("/api/routes/m", *arguments)
    assert answer == {"generation": 7}
    [one] = asked
    assert (one.method, one.path) == (method, "/api/routes/m")
    assert json.loads(one.body or b"null") == (arguments[0] if arguments else None)


EVIL = "m\x1b]0;owned\x07\x9b2J"


def test_what_a_terminal_would_obey_arrives_spelled_out() -> None:
    with control(200, json.dumps({"name": EVIL}).encode(), []) as url:
        assert AdminClient(url).get("/api/models/m") == {"name": "m\\x1b]0;owned\\x07\\x9b2J"}


def test_nothing_that_is_printed_gives_orders_to_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table(["name"], [[EVIL]])
    say(EVIL)
    complain(CheckFailed(EVIL, [EVIL]))
    complain(Invalid(EVIL, why=EVIL, try_this=EVIL))
    said = capsys.readouterr()
    assert "\x1b" not in said.out + said.err and "\x9b" not in said.out + said.err
    assert (said.out + said.err).count("\\x1b]0;owned") == 7


@pytest.mark.parametrize("reason", ["because", "", "für die Prüfung", "日本語"])
def test_who_asks_and_why_travel_along(reason: str) -> None:
    asked: list[Request] = []
    with control(200, b"{}", asked) as url:
        AdminClient(url, reason=reason).delete("/x")
    assert asked[0].headers["servegate-author"]
    received = asked[0].headers["servegate-reason"].encode("latin-1").decode()
    assert unquote(received) == reason


def test_an_error_arrives_as_it_was_raised() -> None:
    for status, kind, code, exit_status in (
        (400, Invalid, "bad_request", 2),
        (401, Unauthenticated, "unauthenticated", 4),
        (403, Forbidden, "forbidden", 4),
        (404, NotFound, "unknown_model", 3),
        (409, Conflict, "version_not_ready", 5),
        (412, Conflict, "precondition_failed", 5),
        (422, Invalid, "invalid", 2),
        (503, Unavailable, "unavailable", 6),
        (504, DeadlineExceeded, "deadline_exceeded", 8),
        (500, ServegateError, "error", 1),
    ):
        error = refused(status, error_body(code))
        assert isinstance(error, kind)
        assert (error.code, exit_code(error)) == (code, exit_status)
        if status == 401:
            assert "SERVEGATE_KEY" in error.try_this and "--key-file" in error.try_this
        else:
            assert str(error) == "it broke: a reason. Try: that"


def test_what_is_shown_to_be_let_in_is_sent_and_nothing_otherwise() -> None:
    for shown in ("", "Bearer sg_abcd_0123456789abcdef"):
        asked: list[Request] = []
        with control(200, b"{}", asked) as url:
            client = AdminClient(url, authorization=shown)
            client.get("/x")
        assert asked[0].headers.get("authorization", "") == shown
        assert "sg_" not in repr(client)


def test_where_nobody_listens_there_is_no_control_plane() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NoControl, match=f"127.0.0.1:{port} does not respond") as told:
        AdminClient(f"http://127.0.0.1:{port}").get("/api/models")
    assert exit_code(told.value) == 6


def test_a_control_plane_that_says_nothing_is_too_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = AdminClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(DeadlineExceeded):
            client.get("/api/models")


def test_an_error_in_another_shape_is_told_by_its_status() -> None:
    shapes = [b"", b"<html>another server</html>", b"[]", b"null", b'{"detail":"Not Found"}']
    for status in (200, 400, 403, 404, 500, 504):
        for body in shapes[:2] if status == 200 else shapes:
            error = refused(status, body)
            assert error.what and error.code == type(error).code
            assert status in (200, 504) or str(status) in str(error)


def test_an_address_that_is_none_is_an_error_of_ours() -> None:
    for url in ("http://[::1", "nonsense", "ftp://127.0.0.1", "http://"):
        refusal(ServegateError, AdminClient(url).get, "/api/models")


def test_a_name_stays_one_segment_of_the_path() -> None:
    quoted = {"digits": "digits", "a/b": "a%2Fb", "a b?#": "a%20b%3F%23"}
    assert {name: segment(name) for name in quoted} == quoted


def test_errors_of_this_machine_have_exit_codes_too() -> None:
    for error, status in (
        (BadRequest("x"), 2),
        (UnknownModel("x"), 3),
        (TritonMissing("x"), 6),
        (CannotStart("x"), 1),
    ):
        assert exit_code(error) == status
