"""A worker tells the control plane who waits for a pool that has been scaled to zero."""

import asyncio
import json
from collections.abc import Awaitable, Callable

from serve.app.waking import Caller

BOUND = 30.0  # seconds; a bound for what takes little


class Control:
    """Stands for the control plane: keeps what it is told, and answers in turn, then with 204."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)
        self.heads: list[str] = []
        self.told: asyncio.Queue[list[str]] = asyncio.Queue()

    async def listen(self) -> str:
        self._server = await asyncio.start_server(self._talk, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = next(int(line[16:]) for line in head.split("\r\n") if "content-length" in line)
            self.heads.append(head)
            self.told.put_nowait(json.loads(await reader.readexactly(length))["models"])
            status = self._answers.pop(0) if self._answers else 204
            if not status:  # the connection is lost
                break
            ending = "\r\n" if status == 204 else "content-length: 0\r\n\r\n"
            writer.write(f"HTTP/1.1 {status} Some\r\n{ending}".encode())
        writer.close()


def play(
    scenario: Callable[[Control, Caller, set[str]], Awaitable[None]],
    *answers: int,
    again: float = BOUND,
) -> Control:
    """Act a scenario out with a running caller, and the models that it finds waited for."""
    control, models = Control(*answers), set[str]()

    async def act() -> None:
        url = await control.listen()
        caller = Caller(lambda: models, url=url, secret="s3cret", again=again)
        running = asyncio.create_task(caller.run())
        async with asyncio.timeout(BOUND):
            await scenario(control, caller, models)
        running.cancel()
        await asyncio.wait((running,))

    asyncio.run(act())
    return control


def test_the_control_plane_hears_at_once_of_every_new_model_and_with_the_secret() -> None:
    async def scenario(control: Control, caller: Caller, models: set[str]) -> None:
        models.add("m")
        caller.tell()
        assert await control.told.get() == ["m"]
        models.add("n")
        caller.tell()
        assert await control.told.get() == ["m", "n"]

    control = play(scenario)
    assert all(head.startswith("POST /internal/waking HTTP/1.1") for head in control.heads)
    assert all("authorization: Bearer s3cret" in head for head in control.heads)


def test_it_hears_nothing_while_nobody_waits() -> None:
    async def scenario(control: Control, caller: Caller, models: set[str]) -> None:
        caller.tell()  # who has left already
        await asyncio.sleep(0)
        models.add("m")
        caller.tell()
        assert await control.told.get() == ["m"]
        assert control.told.empty()

    play(scenario)


def test_what_it_does_not_take_is_told_again() -> None:
    async def scenario(control: Control, caller: Caller, models: set[str]) -> None:
        models.add("m")
        caller.tell()
        for _ in range(3):
            assert await control.told.get() == ["m"]

    play(scenario, 503, 0)


def test_it_is_told_again_as_long_as_somebody_waits() -> None:
    """A control plane that has been started anew has forgotten it."""

    async def scenario(control: Control, caller: Caller, models: set[str]) -> None:
        models.add("m")
        caller.tell()
        assert await control.told.get() == ["m"]
        assert await control.told.get() == ["m"]

    play(scenario, again=0.0)


def test_what_was_wanted_only_once_is_told_until_it_is_heard() -> None:
    async def scenario(control: Control, caller: Caller, models: set[str]) -> None:
        models.add("m")
        caller.tell()
        assert await control.told.get() == ["m"]  # in vain
        models.clear()
        assert await control.told.get() == ["m"]
        models.add("n")
        caller.tell()
        assert await control.told.get() == ["n"]

    play(scenario, 503)


def test_an_operator_sees_whom_it_calls() -> None:
    shown = repr(Caller(lambda: {"b", "a"}, url="http://localhost:1", secret="s3cret"))
    assert "http://localhost:1" in shown and "s3cret" not in shown
