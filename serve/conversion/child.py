"""The child process that reads one model file: `python -m serve.conversion.child`.

It takes four words: format, path, bytes of memory, seconds. First it binds itself to these limits,
then it imports the format's reader, and last it prints what the reader found, or why it refused, as
JSON in lines that begin with `>`.
"""

import json
import resource
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from serve.conversion.reading import ANSWER
from serve.core.errors import Invalid
from serve.tensors.signature import Signature

READERS = {
    "onnx": "serve.conversion.onnx_reader",
    "savedmodel": "serve.conversion.savedmodel_reader",
    "plan": "serve.conversion.plan_reader",
}
_PIECE = 8 * 1024  # characters of a line; longer lines would be cut
_COPIES = 2  # of a file, while its bytes are turned into a message


def main() -> None:
    """Read the file that the command line names."""
    kind, name, memory, seconds = sys.argv[1:5]
    path = Path(name)
    bind(kind, path, memory=int(memory), seconds=int(seconds))
    read = cast(Callable[[Path], Signature], import_module(READERS[kind]).read)
    try:
        tell({"signature": read(path).to_json()})
    except Invalid as error:
        tell({"refused": {"what": error.what, "why": error.why, "try_this": error.try_this}})


def bind(kind: str, path: Path, *, memory: int, seconds: int) -> None:
    """Limit this process. A plan's reader is not bound in its address space: CUDA reserves it."""
    source = path / "saved_model.pb" if kind == "savedmodel" else path
    most = memory + _COPIES * source.stat().st_size
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
