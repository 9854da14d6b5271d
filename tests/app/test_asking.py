"""Questions between our own processes, against a server whose every byte is scripted."""

import asyncio
import os
import socket
from pathlib import Path

import pytest
from app.scripted import Scripted, answer
from loops import in_each_loop
from ports import free_ports

from serve.app.internal_http import INSIDE, InternalConnection, InternalResponse

OK = answer(b"hi")


@in_each_loop
async def test_a_question_is_a_get_with_its_headers() -> None:
    server = Scripted(OK)
    where = await server.listen()
    async with InternalConnection(where + "/base/") as line:
        assert await line.get("/a?b=1", {"authorization": "Bearer s"}) == InternalResponse(
            200, b"hi"
        )
    assert server.heads == [
        f"GET /base/a?b=1 HTTP/1.1\r\nhost: {where[7:]}\r\nauthorization: Bearer s\r\n\r\n"
    ]


@in_each_loop
async def test_a_unix_socket_may_stand_in_a_setting_and_the_kernel_says_who_listens(
    tmp_path: Path,
) -> None:
    path = tmp_path / "control.sock"
    server = Scripted(OK)
    await server.listen(path)
    async with InternalConnection(f"{INSIDE}{path}") as line:
        assert await line.get("/a") == InternalResponse(200, b"hi")
        assert line.listener == os.getpid()
    assert server.heads == ["GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"]


@in_each_loop
async def test_an_answer_is_read_however_it_is_cut() -> None:
    chunks = b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    answers = {
        OK: InternalResponse(200, b"hi"),
        answer(status="204 No Content"): InternalResponse(204, b""),
        b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n" + chunks: InternalResponse(
            500, b"abcde"
        ),
    }

    for at_once in (1, 7, 1000):
        server = Scripted(*answers, at_once=at_once)
        async with InternalConnection(await server.listen()) as line:
            for wanted in answers.values():
                assert await line.get("/") == wanted, f"in pieces of {at_once} bytes"


@pytest.mark.parametrize(("more", "connections"), [(b"", 1), (b"\r\nconnection: close", 2)])
@in_each_loop
async def test_one_connection_serves_many_questions_unless_the_server_closes_it(
    more: bytes, connections: int
) -> None:
    first = OK.replace(b"\r\n\r\n", more + b"\r\n\r\n")
    server = Scripted(first, OK, OK)
    async with InternalConnection(await server.listen()) as line:
        assert [(await line.get("/")).status for _ in range(3)] == [200] * 3
    assert server.connections == connections


@pytest.mark.parametrize("broken", [b"", b"not HTTP at all\r\n\r\n"], ids=["end", "garbage"])
@in_each_loop
async def test_a_broken_answer_is_an_os_error_and_the_next_question_is_a_new_start(
    broken: bytes,
) -> None:
    server = Scripted(broken, OK)
    async with InternalConnection(await server.listen()) as line:
        with pytest.raises(OSError):
            await line.get("/")
        assert await line.get("/") == InternalResponse(200, b"hi")


@in_each_loop
async def test_a_question_that_takes_too_long_leaves_no_half_answer_behind() -> None:
    server = Scripted(OK[:-1], OK)
    async with InternalConnection(await server.listen()) as line:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await line.get("/")
        assert await line.get("/") == InternalResponse(200, b"hi")


@in_each_loop
async def test_nobody_there_is_an_os_error(tmp_path: Path) -> None:
    for where in (f"http://127.0.0.1:{free_ports(1)[0]}", tmp_path / "no.sock"):
        async with InternalConnection(where) as line:
            with pytest.raises(OSError):
                await line.get("/")
            assert line.listener is None


@in_each_loop
async def test_a_listener_that_never_answers_is_known_all_the_same(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as mute:
        mute.bind(str(tmp_path / "one.sock"))
        mute.listen()
        async with InternalConnection(tmp_path / "one.sock") as line:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await line.get("/")
            assert line.listener == os.getpid()
