"""A child process that computes what would keep an event loop waiting.

The threads of a process share the interpreter's lock. While a thread parsed JSON, other calls of
the worker took ten times as long (measured). A child process has its own lock, and a lower
priority.

    parent → child   the function and its arguments
    child → parent   the result, or the error

Both are pickled. Large byte strings follow the pickle, each with its length: copying 30 MB takes
25 ms, so they are joined in a thread, which releases the lock meanwhile. The child starts with the
first call and is killed after 30 s without one.
"""

import asyncio
import gc
import io
import os
import pickle
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, TypeVar

from serve.core.errors import ServegateError
from serve.processes.kernel import carry_name, die_with, return_memory, step_back

_IDLE = 30.0  # seconds
_NICE = 10
_BUFFER = 256 << 10  # bytes
_LARGE = 64 << 10  # bytes
_COPIED = 1 << 20  # bytes; `bytes.join` releases the lock from here on
_HEAD = struct.Struct("<II")  # the length of the pickle, and how many byte strings follow it
_LENGTH = struct.Struct("<Q")

T = TypeVar("T")


class Pieces(list[bytes]):
    """A byte string in pieces: a large argument, which reaches the function as `bytes`."""


class ComputeProcess:
    """Runs one function at a time in a child of this process."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._child: Process | None = None
        self._end: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<ComputeProcess pid={self._child.pid if self._child else None}>"

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """`function(*arguments)`, or its error; all of them can be pickled.

        When the caller is cancelled, the child is killed.
        """
        async with self._turn:
            if self._end is not None:
                self._end.cancel()
            try:
                child = await self._running()
                assert child.stdin is not None and child.stdout is not None
                child.stdin.writelines(_packed((function, arguments)))
                await child.stdin.drain()
                result, error = await _answer(child.stdout)
            except (OSError, asyncio.IncompleteReadError) as broken:
                self.close()
                raise ServegateError(
                    "the request could not be converted",
                    why=f"the process that converts large requests ended ({broken})",
                    try_this="repeat the call, and check the memory limit of the gateway",
                ) from broken
            except BaseException:
                self.close()
                raise
            self._end = asyncio.get_running_loop().call_later(_IDLE, self.close)
        if error is not None:
            raise error
        made: T = result
        return made

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            assert child.stdin is not None
            child.stdin.close()
            child.kill()

    async def _running(self) -> Process:
        if self._child is None or self._child.returncode is not None:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", __name__, str(os.getpid())),
                stdin=PIPE,
                stdout=PIPE,
                limit=_BUFFER,
                start_new_session=True,
            )
        return self._child


def main(parent: int, asked: BinaryIO, answers: BinaryIO) -> None:
    """Compute until the parent closes its end."""
    die_with(parent)
    step_back(_NICE)
    carry_name("sg-compute")
    gc.disable()
    gc.freeze()
    while head := asked.read(_HEAD.size):
        answers.writelines(_packed(_computed(head, asked.read)))
        answers.flush()
        return_memory()


def _computed(head: bytes, read: Callable[[int], bytes]) -> tuple[Any, Exception | None]:
    size, count = _HEAD.unpack(head)
    pickled = read(size)
    blobs = [read(_LENGTH.unpack(read(_LENGTH.size))[0]) for _ in range(count)]
    function, arguments = _unpacked(pickled, blobs)
    try:
        return function(*arguments), None
    except Exception as error:  # the caller raises it
        return None, error


# --- messages -------------------------------------------------------------------------------------


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, 5)
        self.blobs: list[Pieces] = []

    def persistent_id(self, obj: Any) -> int | None:
        if type(obj) is bytes and len(obj) > _LARGE:
            obj = Pieces([obj])
        if type(obj) is not Pieces:
            return None
        self.blobs.append(obj)
        return len(self.blobs) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, pickled: bytes, blobs: list[bytes]) -> None:
        super().__init__(io.BytesIO(pickled))
        self._blobs = blobs

    def persistent_load(self, pid: int) -> bytes:
        return self._blobs[pid]


def _packed(message: Any) -> list[bytes]:
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(message)
    pickled, blobs = file.getvalue(), pickler.blobs
    pieces = [_HEAD.pack(len(pickled), len(blobs)) + pickled]
    for blob in blobs:
        pieces += _LENGTH.pack(sum(map(len, blob))), *blob
    return pieces


def _unpacked(pickled: bytes, blobs: list[bytes]) -> Any:
    return _Unpickler(pickled, blobs).load()


async def _answer(reader: asyncio.StreamReader) -> tuple[Any, Exception | None]:
    size, count = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    pickled, blobs = await reader.readexactly(size), []
    for _ in range(count):
        pieces, (left,) = [], _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        while left:
            pieces.append(await reader.read(min(left, _BUFFER)))
            if not pieces[-1]:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(pieces[-1])
        blobs.append(await joined(pieces))
    answer: tuple[Any, Exception | None] = _unpacked(pickled, blobs)
    return answer


async def joined(pieces: Sequence[bytes]) -> bytes:
    """The pieces in one, copied in a thread when they are large."""
    if sum(map(len, pieces)) < _COPIED:
        return b"".join(pieces)
    return await asyncio.get_running_loop().run_in_executor(None, b"".join, pieces)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides
    main(int(sys.argv[1]), sys.stdin.buffer, sys.stdout.buffer)
