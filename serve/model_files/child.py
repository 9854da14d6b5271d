"""The child process that reads one model file: `python -m serve.model_files.child`.

It takes four words: the reader, path, bytes of memory, seconds; further ones are the reader's. A
reader is the name of a module with a function `read`; those of this package have short names.
First it binds itself to these limits, then it imports the reader, and last it prints what the
reader found, or why it refused, as JSON in lines that begin with `>`.
"""

import json
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, cast

from serve.core.errors import ConversionFailed, Invalid
from serve.model_files.reader import ANSWER

READERS = {
    "onnx": "serve.model_files.onnx_reader",
    "savedmodel": "serve.model_files.savedmodel_reader",
    "plan": "serve.model_files.plan_reader",
}
_FAULT = ("code", "what", "why", "try_this", "operator", "node")
_PIECE = 8 * 1024  # characters of a line; longer lines would be cut
_COPIES = 2  # of a file, while its bytes are turned into a message


class ReaderResult(Protocol):
    """What a reader finds."""

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""


def main() -> None:
    """Read the file that the command line names."""
    kind, name, memory, seconds, *words = sys.argv[1:]
    path = Path(name)
    bind(kind, path, memory=int(memory), seconds=int(seconds))
    read = cast(Callable[..., ReaderResult], import_module(READERS.get(kind, kind)).read)
    try:
        tell({"found": read(path, *words).to_json()})
    except Invalid as error:
        tell({"refused": {"what": error.what, "why": error.why, "try_this": error.try_this}})
    except ConversionFailed as error:
        tell({"failed": {name: getattr(error, name) for name in _FAULT}})


def bind(kind: str, path: Path, *, memory: int, seconds: int) -> None:
    """Limit this process. A plan's reader is not bound in its address space: CUDA reserves it."""
    source = path / "saved_model.pb" if path.is_dir() else path
    most = memory + _COPIES * (source.stat().st_size if source.is_file() else 0)
    if kind != "plan":
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def tell(answer: dict[str, Any]) -> None:
    """Print the answer in pieces."""
    text = json.dumps(answer)
    for start in range(0, len(text), _PIECE):
        print(ANSWER + text[start : start + _PIECE], flush=True)


if __name__ == "__main__":
    main()
