"""Reads what a model file takes and gives, in a child process under limits.

A model file is foreign data: parsing it may take all memory, hang, or bring the parser down. So
each file is read by `python -m serve.model_files.child`, which may use so much memory and time and
no more, and dies with this process. It answers with lines that begin with `>`: pieces of one JSON
document. Whatever else it says is talk, of which the end is told when it fails.
"""

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
from collections import deque
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from serve.core.errors import ConversionFailed, Invalid
from serve.processes.children import Exit, Program, spawn
from serve.processes.kernel import die_with
from serve.tensors.signature import ModelSignature

ANSWER = ">"
_SUFFIXES = {".onnx": "onnx", ".plan": "plan", ".engine": "plan"}
KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")  # of the environment; no secrets
_LAST_LINES = 50
_NO_MEMORY = (  # of Python, of C++, of the loader, of the kernel, and of the libraries
    *("MemoryError", "bad_alloc", "std::length_error", "failed to map segment"),
    *("Cannot allocate memory", "Failed to allocate memory", "OOM when allocating"),
    "ResourceExhausted",
)


class ReaderTooSlow(Invalid):
    """Reading takes longer than it may."""


class TooLarge(Invalid):
    """Reading takes more memory than it may."""


async def read_model(
    path: Path,
    *,
    timeout: float = 60.0,  # noqa: ASYNC109 — the child gets it as a limit as well
    memory: int = 2 << 30,
) -> ModelSignature:
    """The signature of an ONNX file, a SavedModel's folder, or a TensorRT plan.

    `memory` bytes are for the reader beside the file itself, `timeout` is in seconds. `Invalid`
    says what is wrong with the file, or which limit it broke. Call it in the main thread, whose
    death the child notices.
    """
    found = await ask(format_of(path), path, timeout=timeout, memory=memory)
    return ModelSignature.from_json(found)


async def ask(
    kind: str,
    path: Path,
    *words: str,
    timeout: float,  # noqa: ASYNC109 — the child gets it as a limit as well
    memory: int,
) -> Any:
    """What the reader of this kind finds, as its `to_json` gives it; `words` are its own.

    `Invalid` as `read_model`, `ReaderTooSlow` and `TooLarge` among them; `ConversionFailed` from
    readers that tell their faults by the catalogue.
    """
    program = _program(kind, path, words, timeout, memory)
    heard = _Heard()
    try:
        async with asyncio.timeout(timeout), spawn(program, on_line=heard) as child:
            ended = await child.wait()
    except TimeoutError as error:
        raise _too_slow(path, timeout) from error
    return _judged(path, ended, heard, timeout, memory)


def ask_waiting(kind: str, path: Path, *, timeout: float, memory: int) -> Any:
    """As `ask`, for code without an event loop: its thread waits, and must outlive the answer.

    The child stays in the group of this process: who kills that kills both.
    """
    program = _program(kind, path, (), timeout, memory)
    heard = _Heard()
    try:
        ended = subprocess.run(
            program.argv,
            env=dict(program.env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            preexec_fn=partial(die_with, os.getpid()),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _too_slow(path, timeout) from error
    for line in ended.stdout.decode("utf-8", "replace").splitlines():
        heard(line)
    return _judged(path, Exit(ended.returncode), heard, timeout, memory)


def _program(kind: str, path: Path, words: tuple[str, ...], timeout: float, memory: int) -> Program:
    return Program(
        name="servegate-reader",
        argv=(
            *(sys.executable, "-P", "-m", "serve.model_files.child"),
            *(kind, str(path), str(memory), str(math.ceil(timeout)), *words),
        ),
        env={
            **{name: os.environ[name] for name in KEPT if name in os.environ},
            "OPENBLAS_NUM_THREADS": "1",  # each thread would take address space
            "ORT_DISABLE_TELEMETRY": "1",
        },
        grace=0.0,
    )


def format_of(path: Path) -> str:
    """`onnx`, `savedmodel` or `plan`; `Invalid` for what no reader knows, or what is not there."""
    if not path.exists():
        raise Invalid(f"the model file '{path.name}' does not exist")
    if path.is_dir():
        if (path / "saved_model.pb").is_file():
            return "savedmodel"
        if (path / "saved_model.pbtxt").is_file():
            raise Invalid(
                f"the SavedModel '{path.name}' is in text form",
                why="only saved_model.pb can be read",
                try_this="save it again with a current TensorFlow",
            )
        raise Invalid(
            f"the folder '{path.name}' is not a SavedModel", why="it has no saved_model.pb"
        )
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise Invalid(
            f"'{path.name}' cannot be read",
            why="only .onnx and .plan files and SavedModel folders are supported",
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


def _judged(path: Path, ended: Exit, heard: _Heard, timeout: float, memory: int) -> Any:
    if ended.code == -signal.SIGXCPU:
        raise _too_slow(path, timeout)
    if ended.code != 0:
        raise _failure(path, ended, heard, memory)
    try:
        answer = json.loads("".join(heard.answer))
        refused, fault = answer.get("refused"), answer.get("failed")
        found = None if refused or fault else answer["found"]
    except (ValueError, KeyError, AttributeError) as error:
        raise Invalid(
            f"'{path.name}' cannot be read", why="its reader returned no result"
        ) from error
    if fault:
        code, what = str(fault.pop("code")), str(fault.pop("what"))
        raise ConversionFailed(code, what, **{name: str(text) for name, text in fault.items()})
    if refused:
        raise Invalid(refused["what"], why=refused["why"], try_this=refused["try_this"])
    return found


def _too_slow(path: Path, timeout: float) -> ReaderTooSlow:
    return ReaderTooSlow(
        f"'{path.name}' cannot be read", why=f"reading it takes longer than {timeout:g} s"
    )


def _failure(path: Path, ended: Exit, heard: _Heard, memory: int) -> Invalid:
    said = " | ".join(heard.talk)
    starved = ended.code == -signal.SIGKILL or lacks_memory(said)
    if starved:
        why = f"reading it takes more than {memory >> 20} MiB of memory, without the file itself"
        return TooLarge(f"'{path.name}' cannot be read", why=why)
    why = f"its reader failed ({ended})" + (f": {heard.talk[-1][:300]}" if heard.talk else "")
    return Invalid(f"'{path.name}' cannot be read", why=why)


def lacks_memory(said: str) -> bool:
    """Whether these are the words of something that got no memory."""
    return any(words in said for words in _NO_MEMORY)
