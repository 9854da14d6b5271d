"""A steady load from a process of its own: so many calls a second, whatever becomes of them.

Open loop: each call is due at its time, and its latency counts from then on. So a gateway that
stands still makes every call late that was due meanwhile, and not just one.
"""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

PATIENCE = 30.0  # seconds for one call
IDLE = 30.0  # seconds after which a connection is not used again


class Call(NamedTuple):
    """What is called in turn with the others. `name` is for the one who reads the results."""

    name: str
    path: str
    body: str


class Done(NamedTuple):
    """One call: when it was due (monotonic seconds), how long it took, and the answer.

    `status` is 0 where there was none; `told` is the version that answered, or what went wrong.
    """

    name: str
    due: float
    seconds: float
    status: int
    told: str


class Steady:
    """The load, inside a `with` block; `done` is there after it."""

    def __init__(self, host: str, calls: Sequence[Call], *, rate: float) -> None:
        self._order = json.dumps([host, rate, calls])
        self.done: list[Done] = []

    def __enter__(self) -> "Steady":
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._order],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()  # the first call was answered
        return self

    def __exit__(self, *exc: object) -> None:
        said, _ = self._process.communicate("", timeout=60)
        self.done = [Done(*line) for line in json.loads(said)]

    def failed(self) -> list[Done]:
        """The calls without a good answer."""
        return [call for call in self.done if call.status != 200]

    def of(self, name: str, begun: float, ended: float) -> list[Done]:
        """The calls of this name that were due in this time."""
        return [call for call in self.done if call.name == name and begun <= call.due < ended]


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter, float]  # when it was used last


class _Caller:
    """Calls on keep-alive connections, as many as are needed at a time."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._free: list[Connection] = []
        self.done: list[Done] = []

    async def call(self, call: Call, due: float) -> None:
        """One call, and what became of it."""
        try:
            async with asyncio.timeout(PATIENCE):
                status, body = await self._exchange(call)
            told = str(json.loads(body)["model_version"]) if status == 200 else body.decode()
        except (OSError, EOFError, ValueError, KeyError) as error:
            status, told = 0, repr(error)
        self.done.append(Done(call.name, due, time.monotonic() - due, status, told))

    async def _exchange(self, call: Call) -> tuple[int, bytes]:
        reader, writer = await self._connection()
        body = call.body.encode()
        writer.write(
            f"POST {call.path} HTTP/1.1\r\nHost: {self._host}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.partition("content-length:")[2].split("\r\n")[0])
        answer = await reader.readexactly(length)
        self._free.append((reader, writer, time.monotonic()))
        return int(head.split()[1]), answer

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The one that was used last; one that is idle for long may be closed at any moment."""
        while self._free:
            reader, writer, used = self._free.pop()
            if time.monotonic() - used < IDLE and not reader.at_eof():
                return reader, writer
            writer.close()
        host, _, port = self._host.partition(":")
        return await asyncio.open_connection(host, int(port))


async def _run(host: str, rate: float, calls: Sequence[Call]) -> list[Done]:
    """Call until stdin ends."""
    caller = _Caller(host)
    await caller.call(calls[0], time.monotonic())
    print("calling", flush=True)
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    begun = time.monotonic()
    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count():
            due = begun + number / rate
            await asyncio.wait([ended], timeout=max(due - time.monotonic(), 0))
            if ended.done():
                break
            tasks.create_task(caller.call(calls[number % len(calls)], due))
    return caller.done


def _main() -> None:
    host, rate, calls = json.loads(sys.argv[1])
    print(json.dumps(asyncio.run(_run(host, rate, [Call(*call) for call in calls]))))


if __name__ == "__main__":
    _main()
