"""Reads what a model file takes and gives, in a child process under limits.

A model file is foreign data: parsing it may take all memory, hang, or bring the parser down. So
each file is read by `python -m serve.conversion.child`, which may use so much memory and time and
no more, and dies with this process. It answers with lines that begin with `>`: pieces of one JSON
document. Whatever else it says is talk, of which the end is told when it fails.
"""

import asyncio
import json
import math
import os
import signal
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

from serve.core.errors import Invalid
from serve.processes.children import Exit, Program, spawn
from serve.tensors.signature import Signature

ANSWER = ">"
_SUFFIXES = {".onnx": "onnx", ".plan": "plan", ".engine": "plan"}
_KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")  # of the environment; no secrets
_LAST_LINES = 50
_NO_MEMORY = ("MemoryError", "bad_alloc", "failed to map segment", "Cannot allocate memory")


async def read_model(
    path: Path,
    *,
    timeout: float = 60.0,  # noqa: ASYNC109 — the child gets it as a limit as well
    memory: int = 2 << 30,
) -> Signature:
    """The signature of an ONNX file, a SavedModel's folder, or a TensorRT plan.

    `memory` bytes are for the reader beside the file itself, `timeout` is in seconds. `Invalid`
    says what is wrong with the file, or which limit it broke. Call it in the main thread, whose
    death the child notices.
    """
    program = _program(path, timeout, memory)
    heard = _Heard()
    try:
        async with asyncio.timeout(timeout), spawn(program, on_line=heard) as child:
            ended = await child.wait()
    except TimeoutError as error:
        raise _too_slow(path, timeout) from error
    if ended.code == -signal.SIGXCPU:
        raise _too_slow(path, timeout)
    if ended.code != 0:
        raise _failure(path, ended, heard, memory)
    return _answer(path, heard)


def _program(path: Path, timeout: float, memory: int) -> Program:
    return Program(
        name="servegate-reader",
        argv=(
            *(sys.executable, "-P", "-m", "serve.conversion.child"),
            *(format_of(path), str(path), str(memory), str(math.ceil(timeout))),
        ),
        env={
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "OPENBLAS_NUM_THREADS": "1",  # each thread would take address space
        },
        grace=0.0,
    )


def format_of(path: Path) -> str:
    """`onnx`, `savedmodel` or `plan`; `Invalid` for what no reader knows, or what is not there."""
    if not path.exists():
        raise Invalid(f"there is no model file '{path.name}'")
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return "savedmodel"
        if (path / "saved_model.pbtxt").is_file():
            raise Invalid(
                f"the SavedModel '{path.name}' is in text form",
                why="only saved_model.pb can be read",
                try_this="save it again with a current TensorFlow",
            )
        raise Invalid(f"the folder '{path.name}' is no SavedModel", why="it has no saved_model.pb")
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise Invalid(
            f"'{path.name}' cannot be read",
            why="only .onnx, .plan and SavedModel folders can be",
        )
    return kind


@dataclass(slots=True)
class _Heard:
    """What the child has said: the pieces of its answer, and the last lines of its talk."""

    answer: list[str] = field(default_factory=list)
    talk: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def __call__(self, line: str) -> None:
        if line.startswith(ANSWER):
            self.answer.append(line.removeprefix(ANSWER))
        elif line.strip():
            self.talk.append(line.strip())


def _answer(path: Path, heard: _Heard) -> Signature:
    try:
        answer = json.loads("".join(heard.answer))
        refused = answer.get("refused")
        signature = None if refused else Signature.from_json(answer["signature"])
    except (ValueError, KeyError, AttributeError) as error:
        raise Invalid(f"'{path.name}' cannot be read", why="its reader gave no answer") from error
    if signature is None:
        raise Invalid(refused["what"], why=refused["why"], try_this=refused["try_this"])
    return signature


def _too_slow(path: Path, timeout: float) -> Invalid:
    return Invalid(f"'{path.name}' cannot be read", why=f"it takes longer than {timeout:g} s")


def _failure(path: Path, ended: Exit, heard: _Heard, memory: int) -> Invalid:
    said = " | ".join(heard.talk)
    starved = ended.code == -signal.SIGKILL or any(words in said for words in _NO_MEMORY)
    if starved:
        why = f"it takes more than {memory >> 20} MiB of memory beside the file itself"
    else:
        why = f"its reader ended with {ended}" + (f": {heard.talk[-1][:300]}" if heard.talk else "")
    return Invalid(f"'{path.name}' cannot be read", why=why)
