"""A worker tells the control plane which models calls wait for while their pool is at zero."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from app.scripted import Scripted, answer

from serve.app.wake_requests import WakeCaller

BOUND = 30.0  # seconds; a bound for what takes little
NO_CONTENT, UNAVAILABLE = answer(status="204 No Content"), answer(status="503 Unavailable")


class Scene:
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

    def play(self, scenario: Callable[["Scene"], Awaitable[None]], again: float = BOUND) -> None:
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
    async def scenario(one: Scene) -> None:
        one.wait_for()  # whoever waited has left already
        await asyncio.sleep(0)
        one.wait_for("m")
        assert await one.heard() == ["m"]
        assert one.control.bodies.empty()
        one.wait_for("n")
        assert await one.heard() == ["m", "n"]

    scene = Scene()
    scene.play(scenario)
    assert scene.control.asked == ["POST /internal/waking"] * 2
    assert all("authorization: Bearer s3cret" in head for head in scene.control.heads)
    assert "http://127.0.0.1" in repr(scene.caller) and "s3cret" not in repr(scene.caller)


def test_what_it_does_not_take_is_told_again() -> None:
    async def scenario(one: Scene) -> None:
        one.wait_for("m")
        for _ in range(3):
            assert await one.heard() == ["m"]

    Scene(UNAVAILABLE, b"").play(scenario)


def test_it_is_told_again_as_long_as_a_call_waits() -> None:
    """A control plane that has been started anew has forgotten it."""

    async def scenario(one: Scene) -> None:
        one.wait_for("m")
        for _ in range(2):
            assert await one.heard() == ["m"]

    Scene().play(scenario, again=0.0)


def test_what_was_wanted_only_once_is_told_until_it_is_heard() -> None:
    async def scenario(one: Scene) -> None:
        one.wait_for("m")
        assert await one.heard() == ["m"]  # in vain
        one.models.clear()
        assert await one.heard() == ["m"]
        one.wait_for("n")
        assert await one.heard() == ["n"]

    Scene(UNAVAILABLE).play(scenario)
