"""The admin API's client against a real HTTP server, and the exit codes of its errors."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest

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
    VersionNotReady,
)


@dataclass(slots=True)
class Asked:
    """What the fake control plane was asked."""

    method: str = ""
    path: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@contextmanager
def control(status: int, body: bytes, asked: Asked) -> Iterator[str]:
    """A control plane that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.method, asked.path = self.command, self.path
            asked.headers = {name.lower(): value for name, value in self.headers.items()}
            asked.body = self.rfile.read(int(self.headers.get("content-length") or 0))
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.001})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def error_body(code: str = "invalid") -> bytes:
    return json.dumps(
        {"what": "it broke", "why": "a reason", "try_this": "that", "code": code}
    ).encode()


def refused(status: int, body: bytes) -> ServegateError:
    """The error that an answer becomes."""
    with control(status, body, Asked()) as url, pytest.raises(ServegateError) as raised:
        AdminClient(url).get("/api/models")
    return raised.value


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_json_goes_in_and_json_comes_out(method: str) -> None:
    asked = Asked()
    arguments = () if method in ("GET", "DELETE") else ({"split": {"1": 1}},)
    with control(200, b'{"generation": 7}', asked) as url:
        answer = getattr(AdminClient(url), method.lower())("/api/routes/m", *arguments)
    assert answer == {"generation": 7}
    assert (asked.method, asked.path) == (method, "/api/routes/m")
    assert json.loads(asked.body or b"null") == (arguments[0] if arguments else None)


EVIL = "m\x1b]0;owned\x07\x9b2J"


def test_what_a_terminal_would_obey_arrives_spelled_out() -> None:
    with control(200, json.dumps({"name": EVIL}).encode(), Asked()) as url:
        assert AdminClient(url).get("/api/models/m") == {"name": "m\\x1b]0;owned\\x07\\x9b2J"}


def test_no_table_no_sentence_and_no_error_gives_orders_to_a_terminal(
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
    asked = Asked()
    with control(200, b"{}", asked) as url:
        AdminClient(url, reason=reason).delete("/x")
    assert asked.headers["servegate-author"]
    received = asked.headers["servegate-reason"].encode("latin-1").decode()
    assert unquote(received) == reason


@pytest.mark.parametrize(
    ("status", "kind", "code", "exit_status"),
    [
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
    ],
)
def test_an_error_arrives_as_it_was_raised(
    status: int, kind: type[ServegateError], code: str, exit_status: int
) -> None:
    error = refused(status, error_body(code))
    assert isinstance(error, kind)
    assert (error.code, exit_code(error)) == (code, exit_status)


def test_who_is_not_let_in_hears_how_a_key_is_shown() -> None:
    told = refused(401, error_body("unauthenticated")).try_this
    assert "SERVEGATE_KEY" in told and "--key-file" in told


@pytest.mark.parametrize("shown", ["", "Bearer sg_abcd_0123456789abcdef"])
def test_what_is_shown_to_be_let_in_is_sent_and_nothing_otherwise(shown: str) -> None:
    asked = Asked()
    with control(200, b"{}", asked) as url:
        client = AdminClient(url, authorization=shown)
        client.get("/x")
    assert asked.headers.get("authorization", "") == shown
    assert "sg_" not in repr(client)


def test_all_three_sentences_of_an_error_arrive() -> None:
    assert str(refused(404, error_body())) == "it broke: a reason. Try: that"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"{}", b'{"detail":"Not Found"}'])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 504])
def test_an_error_in_another_shape_is_told_by_its_status(status: int, body: bytes) -> None:
    error = refused(status, body)
    assert error.code == type(error).code
    assert str(status) in str(error) or isinstance(error, DeadlineExceeded)


@pytest.mark.parametrize("body", [b"", b"<html>another server</html>"])
def test_an_answer_that_is_no_json_is_an_error_of_ours(body: bytes) -> None:
    assert refused(200, body).what


@pytest.mark.parametrize("url", ["http://[::1", "nonsense", "ftp://127.0.0.1", "http://"])
def test_an_address_that_is_none_is_an_error_of_ours(url: str) -> None:
    with pytest.raises(ServegateError):
        AdminClient(url).get("/api/models")


def test_where_nobody_listens_there_is_no_control_plane() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with pytest.raises(NoControl, match=f"127.0.0.1:{port} does not answer") as told:
        AdminClient(f"http://127.0.0.1:{port}").get("/api/models")
    assert exit_code(told.value) == 6


def test_a_control_plane_that_says_nothing_is_too_late() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = AdminClient(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        with pytest.raises(DeadlineExceeded):
            client.get("/api/models")


@pytest.mark.parametrize(
    ("name", "quoted"), [("digits", "digits"), ("a/b", "a%2Fb"), ("a b?#", "a%20b%3F%23")]
)
def test_a_name_stays_one_segment_of_the_path(name: str, quoted: str) -> None:
    assert segment(name) == quoted


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Invalid("x"), 2),
        (BadRequest("x"), 2),
        (UnknownModel("x"), 3),
        (VersionNotReady("m", 1, "x"), 5),
        (Unavailable("x"), 6),
        (TritonMissing("x"), 6),
        (DeadlineExceeded(), 8),
        (CannotStart("x"), 1),
        (ServegateError("x"), 1),
    ],
)
def test_exit_codes_mean_something(error: Any, status: int) -> None:
    assert exit_code(error) == status
