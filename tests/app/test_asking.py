"""Questions between our own processes, against a server whose every byte is scripted."""

import asyncio
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from serve.app.asking import INSIDE, Answer, Line

Run = Callable[[Coroutine[Any, Any, None]], None]
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Run a coroutine on either event loop, within ten seconds."""

    async def bounded(work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wait_for(work, 10)

    return lambda work: request.param(bounded(work))


class Scripted:
    """Answers each question with the next of its answers; an empty one ends the connection."""

    def __init__(self, *answers: bytes, at_once: int = 1 << 20) -> None:
        self._answers = list(answers)
        self._at_once = at_once
        self.heads: list[str] = []
        self.connections = 0

    async def listen(self, path: Path | None = None) -> "str | Path":
        """Where to ask."""
        if path is not None:
            self._server = await asyncio.start_unix_server(self._talk, str(path))
            return path
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self._answers:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
                answer = self._answers.pop(0)
                for start in range(0, len(answer), self._at_once):
                    writer.write(answer[start : start + self._at_once])
                    await writer.drain()
                    await asyncio.sleep(0)
                if not answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()


def test_a_question_is_a_get_with_its_headers(run: Run) -> None:
    async def scene() -> None:
        server = Scripted(OK)
        where = str(await server.listen())
        async with Line(where + "/base/") as line:
            assert await line.get("/a?b=1", {"authorization": "Bearer s"}) == Answer(200, b"hi")
        assert server.heads == [
            f"GET /base/a?b=1 HTTP/1.1\r\nhost: {where[7:]}\r\nauthorization: Bearer s\r\n\r\n"
        ]

    run(scene())


def test_a_unix_socket_may_stand_in_a_setting(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        path = tmp_path / "control.sock"
        server = Scripted(OK)
        await server.listen(path)
        async with Line(f"{INSIDE}{path}") as line:
            assert await line.get("/a") == Answer(200, b"hi")
        assert server.heads == ["GET /a HTTP/1.1\r\nhost: localhost\r\n\r\n"]

    run(scene())


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (OK, Answer(200, b"hi")),
        (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, b"")),
        (
            b"HTTP/1.1 500 No\r\ntransfer-encoding: chunked\r\n\r\n"
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            Answer(500, b"abcde"),
        ),
    ],
    ids=["length", "nothing", "chunks"],
)
@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_an_answer_is_read_however_it_is_cut(
    run: Run, answer: bytes, wanted: Answer, at_once: int
) -> None:
    async def scene() -> None:
        server = Scripted(answer, at_once=at_once)
        async with Line(await server.listen()) as line:
            assert await line.get("/") == wanted

    run(scene())


def test_one_connection_serves_many_questions(run: Run) -> None:
    async def scene() -> None:
        server = Scripted(OK, OK, OK)
        async with Line(await server.listen()) as line:
            assert [(await line.get("/")).status for _ in range(3)] == [200] * 3
        assert server.connections == 1

    run(scene())


def test_a_server_that_does_not_keep_the_connection_is_called_again(run: Run) -> None:
    async def scene() -> None:
        closing = OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
        server = Scripted(closing, OK)
        async with Line(await server.listen()) as line:
            assert [(await line.get("/")).status for _ in range(2)] == [200] * 2
        assert server.connections == 2

    run(scene())


@pytest.mark.parametrize("broken", [b"", b"not HTTP at all\r\n\r\n"], ids=["end", "garbage"])
def test_a_broken_answer_is_an_os_error_and_the_next_question_is_a_new_start(
    run: Run, broken: bytes
) -> None:
    async def scene() -> None:
        server = Scripted(broken, OK)
        async with Line(await server.listen()) as line:
            with pytest.raises(OSError):
                await line.get("/")
            assert await line.get("/") == Answer(200, b"hi")

    run(scene())


def test_a_question_that_takes_too_long_leaves_no_half_answer_behind(run: Run) -> None:
    async def scene() -> None:
        server = Scripted(OK[:-1], OK)
        async with Line(await server.listen()) as line:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await line.get("/")
            assert await line.get("/") == Answer(200, b"hi")

    run(scene())


def test_nobody_there_is_an_os_error(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            port = closed.getsockname()[1]
        for where in (f"http://127.0.0.1:{port}", tmp_path / "no.sock"):
            async with Line(where) as line:
                with pytest.raises(OSError):
                    await line.get("/")
                assert line.listener is None

    run(scene())


def test_the_kernel_says_who_listens_on_a_unix_socket(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        server = Scripted(OK)
        async with Line(await server.listen(tmp_path / "one.sock")) as line:
            await line.get("/")
            assert line.listener == os.getpid()

    run(scene())


def test_a_listener_that_never_answers_is_known_all_the_same(run: Run, tmp_path: Path) -> None:
    async def scene() -> None:
        with socket.socket(socket.AF_UNIX) as mute:
            mute.bind(str(tmp_path / "one.sock"))
            mute.listen()
            async with Line(tmp_path / "one.sock") as line:
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.05):
                        await line.get("/")
                assert line.listener == os.getpid()

    run(scene())
