"""The feed: a worker follows the control plane, and goes on without it."""

import asyncio
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from serve.app.feed import Feed
from serve.core.snapshot import Snapshot
from serve.proxy.live import Live


def snapshot(generation: int) -> bytes:
    return json.dumps(Snapshot(generation).to_json()).encode()


class Control:
    """Stands for the control plane: answers the polls in turn, and then holds the next."""

    def __init__(self, *answers: tuple[int, bytes]) -> None:
        self._answers = list(answers)
        self.heads: list[str] = []
        self.connections = 0
        self.is_held = asyncio.Event()

    async def listen(self, port: int = 0) -> int:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", port)
        return int(self._server.sockets[0].getsockname()[1])

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            try:
                self.heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            if not self._answers:
                self.is_held.set()
                await reader.read()
                break
            status, body = self._answers.pop(0)
            if status == 0:  # the connection is lost
                break
            head = f"HTTP/1.1 {status} Some\r\n"
            head += f"content-length: {len(body)}\r\n" if status != 204 else ""
            writer.write(head.encode() + b"\r\n" + body)
        writer.close()


class Scene:
    def __init__(self, tmp_path: Path, *answers: tuple[int, bytes]) -> None:
        self.saved = tmp_path / "snapshot.json"
        self.live = Live()
        self.control = Control(*answers)

    def feed(self, port: int) -> Feed:
        url = f"http://127.0.0.1:{port}"
        return Feed(self.live, url=url, secret="s3cret", worker="worker-0@h:1", saved=self.saved)

    async def follow(self) -> None:
        """Until every scripted answer has been taken."""
        following = asyncio.create_task(self.feed(await self.control.listen()).run())
        await self.control.is_held.wait()
        following.cancel()
        await asyncio.wait((following,))


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scene(), 10))


def test_each_poll_acknowledges_what_the_worker_serves(tmp_path: Path) -> None:
    async def scene() -> None:
        one = Scene(tmp_path, (200, snapshot(3)), (204, b""), (200, snapshot(5)))
        await one.follow()
        paths = [head.split()[1] for head in one.control.heads]
        assert [path.rpartition("after=")[2] for path in paths] == ["0", "3", "3", "5"]
        assert paths[0].startswith("/internal/snapshot?worker=worker-0%40h%3A1&")
        assert all("authorization: Bearer s3cret\r\n" in head for head in one.control.heads)
        assert one.control.connections == 1
        assert one.live.generation == 5

    run(scene)


def test_what_is_served_is_kept_on_disk_for_its_owner_only(tmp_path: Path) -> None:
    async def scene() -> None:
        one = Scene(tmp_path, (200, snapshot(3)))
        await one.follow()
        assert one.saved.read_bytes() == snapshot(3)
        assert one.saved.stat().st_mode & 0o777 == 0o600
        another = Scene(tmp_path)
        assert another.feed(1).restore() and another.live.generation == 3
        assert os.listdir(tmp_path) == ["snapshot.json"]  # noqa: PTH208

    run(scene)


@pytest.mark.parametrize("content", [b'{"generation": 1e400}', b"[" * 100_000, b"\xff"])
def test_a_spoilt_snapshot_on_disk_is_not_served(tmp_path: Path, content: bytes) -> None:
    one = Scene(tmp_path)
    one.saved.write_bytes(content)
    assert (one.feed(1).restore(), one.live.generation) == (False, 0)


def test_errors_and_lost_connections_leave_the_last_snapshot_in_force(tmp_path: Path) -> None:
    async def scene() -> None:
        answers = [(200, snapshot(3)), (500, b"no"), (0, b""), (200, b"{"), (200, snapshot(4))]
        one = Scene(tmp_path, *answers)
        await one.follow()
        afters = [head.split()[1].rpartition("after=")[2] for head in one.control.heads]
        assert afters == ["0", "3", "3", "3", "3", "4"]
        assert one.control.connections == 2
        assert one.live.generation == 4

    run(scene)


def test_a_snapshot_of_a_later_format_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    """A control plane was upgraded before its workers."""

    async def scene() -> None:
        later = json.dumps(Snapshot(9).to_json() | {"format": 99}).encode()
        one = Scene(tmp_path, (200, snapshot(3)), (200, later), (200, snapshot(4)))
        await one.follow()
        afters = [head.split()[1].rpartition("after=")[2] for head in one.control.heads]
        assert afters == ["0", "3", "3", "4"]
        assert one.saved.read_bytes() == snapshot(4)

    run(scene)
