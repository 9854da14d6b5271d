"""What a worker hears from its control plane, and tells it of calls that wait for a pool."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from app.scripted import Scripted, answer

from serve.app.feed import Feed
from serve.app.wake_requests import WakeCaller
from serve.core.snapshot import Snapshot
from serve.proxy.gateway import LiveSnapshot


def snapshot(generation: int) -> bytes:
    return json.dumps(Snapshot(generation).to_json()).encode()


def given(generation: int) -> bytes:
    return answer(snapshot(generation))


class Scene:
    def __init__(self, folder: Path, *answers: bytes) -> None:
        self.saved = folder / "snapshot.json"
        self.live = LiveSnapshot()
        if answers:
            asyncio.run(asyncio.wait_for(self._follow(answers), 10))

    def feed(self, url: str = "http://127.0.0.1:1") -> Feed:
        return Feed(self.live, url=url, secret="s3cret", worker="worker-0@h:1", saved=self.saved)

    async def _follow(self, answers: tuple[bytes, ...]) -> None:
        self.control = Scripted(*answers)
        following = asyncio.create_task(self.feed(await self.control.listen()).run())
        await self.control.is_held.wait()
        following.cancel()
        await asyncio.wait((following,))

    @property
    def acknowledged(self) -> list[int]:
        return [int(asked.rpartition("after=")[2]) for asked in self.control.asked]


def test_each_poll_acknowledges_what_the_worker_serves(tmp_path: Path) -> None:
    one = Scene(tmp_path, given(3), answer(status="204 No Content"), given(5))
    assert one.acknowledged == [0, 3, 3, 5]
    assert one.control.asked[0].startswith("GET /internal/snapshot?worker=worker-0%40h%3A1&")
    assert all("authorization: Bearer s3cret\r\n" in head for head in one.control.heads)
    assert (one.control.connections, one.live.generation) == (1, 5)


def test_what_is_served_is_kept_on_disk_for_its_owner_only(tmp_path: Path) -> None:
    one = Scene(tmp_path, given(3))
    assert one.saved.read_bytes() == snapshot(3)
    assert one.saved.stat().st_mode & 0o777 == 0o600
    another = Scene(tmp_path)
    assert another.feed().restore() and another.live.generation == 3
    assert list(tmp_path.iterdir()) == [one.saved]


@pytest.mark.parametrize("content", [b'{"generation": 1e400}', b"[" * 100_000, b"\xff"])
def test_a_spoilt_snapshot_on_disk_is_not_served(tmp_path: Path, content: bytes) -> None:
    one = Scene(tmp_path)
    one.saved.write_bytes(content)
    assert (one.feed().restore(), one.live.generation) == (False, 0)


def test_errors_and_lost_connections_leave_the_last_snapshot_in_force(tmp_path: Path) -> None:
    bad = (answer(b"no", "500 Broken"), b"", answer(b"{"))
    one = Scene(tmp_path, given(3), *bad, given(4))
    assert one.acknowledged == [0, 3, 3, 3, 3, 4]
    assert (one.control.connections, one.live.generation) == (2, 4)


def test_a_snapshot_of_a_later_format_leaves_the_last_one_in_force(tmp_path: Path) -> None:
    """A control plane was upgraded before its workers."""
    later = json.dumps(Snapshot(9).to_json() | {"format": 99}).encode()
    one = Scene(tmp_path, given(3), answer(later), given(4))
    assert one.acknowledged == [0, 3, 3, 4]
    assert one.saved.read_bytes() == snapshot(4)


# --- calls that wait ------------------------------------------------------------------------------

BOUND = 30.0  # seconds; a bound for what takes little
NO_CONTENT, UNAVAILABLE = answer(status="204 No Content"), answer(status="503 Unavailable")


class Waiting:
    """A worker and its control plane; `models` are those that calls wait for."""

    def __init__(self, *answers: bytes) -> None:
        self.control = Scripted(*answers, then=NO_CONTENT)
        self.models = set[str]()

    def wait_for(self, *models: str) -> None:
        self.models |= {*models}
        self.caller.tell()

    async def heard(self) -> list[str]:
        models: list[str] = json.loads(await self.control.bodies.get())["models"]
        return models

    def play(self, scenario: Callable[["Waiting"], Awaitable[None]], again: float = BOUND) -> None:
        async def act() -> None:
            url = await self.control.listen()
            self.caller = WakeCaller(lambda: self.models, url=url, secret="s3cret", again=again)
            running = asyncio.create_task(self.caller.run())
            async with asyncio.timeout(BOUND):
                await scenario(self)
            running.cancel()
            await asyncio.wait((running,))

        asyncio.run(act())


def test_the_control_plane_hears_at_once_of_every_new_model_and_with_the_secret() -> None:
    async def scenario(one: Waiting) -> None:
        one.wait_for()  # whoever waited has left already
        await asyncio.sleep(0)
        one.wait_for("m")
        assert await one.heard() == ["m"]
        assert one.control.bodies.empty()
        one.wait_for("n")
        assert await one.heard() == ["m", "n"]

    scene = Waiting()
    scene.play(scenario)
    assert scene.control.asked == ["POST /internal/waking"] * 2
    assert all("authorization: Bearer s3cret" in head for head in scene.control.heads)
    assert "http://127.0.0.1" in repr(scene.caller) and "s3cret" not in repr(scene.caller)


def test_what_it_does_not_take_is_told_again() -> None:
    async def scenario(one: Waiting) -> None:
        one.wait_for("m")
        for _ in range(3):
            assert await one.heard() == ["m"]

    Waiting(UNAVAILABLE, b"").play(scenario)


def test_it_is_told_again_as_long_as_a_call_waits() -> None:
    """A control plane that has been started anew has forgotten it."""

    async def scenario(one: Waiting) -> None:
        one.wait_for("m")
        for _ in range(2):
            assert await one.heard() == ["m"]

    Waiting().play(scenario, again=0.0)


def test_what_was_wanted_only_once_is_told_until_it_is_heard() -> None:
    async def scenario(one: Waiting) -> None:
        one.wait_for("m")
        assert await one.heard() == ["m"]  # in vain
        one.models.clear()
        assert await one.heard() == ["m"]
        one.wait_for("n")
        assert await one.heard() == ["n"]

    Waiting(UNAVAILABLE).play(scenario)
