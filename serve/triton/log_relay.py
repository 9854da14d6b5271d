"""Triton's log lines, as it prints them, into Python's logging.

    I1121 02:59:05.458237 7229 model_lifecycle.cc:472] "loading: a:1"
    │                     │    │                       └ text, in quotes and escaped as in JSON
    severity, date, time  pid  file and line

gRPC's library prints the same form with more digits and spaces. Lines of another form come from
Python models (`print` in a stub), which pass as they are, and from tables that Triton draws at its
start, which are for debugging.
"""

import json
import logging
import re
from collections import deque
from dataclasses import dataclass

_LAST_LINES = 8

_LINE = re.compile(r"([IWEF])\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ ([^\s:]+:\d+)\] *(.*)")
_TABLE = re.compile(r"\+[-+]+\+$|\| .* \|$")
_FRAME = re.compile(r" *\d+# ")  # of the stack of a Triton that has crashed
_LEVELS = {
    "I": logging.INFO,
    "W": logging.WARNING,
    "E": logging.ERROR,
    "F": logging.CRITICAL,
}
# What a sound Triton says on a machine without a GPU. Nobody can or should do anything about it.
_NO_GPU = (
    "CudaDriverHelper has not been initialized",
    "Unable to allocate pinned system memory",
    "CUDA memory pool disabled",
    "Error: Failed to initialize NVML",
    "DCGM unable to start",
)
# What a Triton says that was asked to stop: calls in flight had their time, and the rest is ended.
_STOPPED = ("Exit timeout expired",)


@dataclass(frozen=True, slots=True)
class LogLine:
    """A level of Python's logging, the text, and the place in Triton's source, if known."""

    level: int
    text: str
    source: str = ""


def parse(line: str) -> LogLine:
    """Read one line of Triton's output."""
    found = _LINE.match(line)
    if not found:
        return LogLine(logging.DEBUG if _is_noise(line) else logging.INFO, line)
    severity, source, text = found.groups()
    text = _unquoted(text)
    return LogLine(logging.DEBUG if _is_noise(text) else _LEVELS[severity], text, source)


class LogRelay:
    """Logs the lines of one replica and remembers the last ones of its present life.

    Records carry the replica and the place in Triton's source as `extra`. A Triton that does not
    understand its command line prints hundreds of lines of help, which would bury the reason.
    """

    def __init__(self, replica: str, logger: logging.Logger) -> None:
        self._replica = replica
        self._logger = logger
        self._last: deque[str] = deque(maxlen=_LAST_LINES)
        self._is_help = False

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The end of what it said, without what is for debugging only, and without stacks."""
        return tuple(self._last)

    def begin(self) -> None:
        """A new life of this Triton begins."""
        self._last.clear()
        self._is_help = False

    def __call__(self, line: str) -> None:
        self._is_help = self._is_help or line.startswith("Usage: tritonserver")
        if self._is_help:
            return
        parsed = parse(line)
        if parsed.level > logging.DEBUG and not _FRAME.match(parsed.text):
            self._last.append(parsed.text)
        extra = {"replica": self._replica, "source": parsed.source}
        self._logger.log(parsed.level, "%s", parsed.text, extra=extra)


def _is_noise(text: str) -> bool:
    return not text.strip() or bool(_TABLE.match(text)) or text.startswith((*_NO_GPU, *_STOPPED))


def _unquoted(text: str) -> str:
    text = text.strip()
    if text[:1] == text[-1:] == '"':
        try:
            return str(json.loads(text, strict=False)).strip()
        except ValueError:
            return text[1:-1]
    return text
