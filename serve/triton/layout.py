"""The layout of a model repository on disk: every path that Servegate reads in it.

<repository>/<model>/config.pbtxt        optional for models whose backend completes it
<repository>/<model>/<version>/...       the model's files; versions are numbers from 1
<repository>/<model>/preprocessing.json  how pictures and other raw inputs become tensors
<repository>/<model>/outputs.json        how outputs are to be read, see `tensors/output_kinds.py`
<repository>/<model>/model_card.json     what the model is and how well it does
<repository>/<model>/flavours.json       further runnable forms, see `core/flavours.py`
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve.core.errors import Invalid
from serve.core.versions import CONFIG, FLAVOURS

_SMALL = 1 << 20  # bytes; config, labels and cards beyond this are not what they say they are


@dataclass(frozen=True, slots=True)
class ModelFolder:
    """One model's folder."""

    path: Path

    @property
    def name(self) -> str:
        """The model's name in Triton: the folder's, with what is no text in it escaped."""
        return os.fsencode(self.path.name).decode("utf-8", "backslashreplace")

    def versions(self) -> tuple[int, ...]:
        """The numbered folders, ascending; like Triton, names such as `01` or `0` do not count."""
        found = []
        for entry in os.scandir(self.path):
            name = entry.name
            numbered = name.isascii() and name.isdigit() and name[0] != "0" and len(name) <= 18
            if numbered and entry.is_dir():
                found.append(int(entry.name))
        return tuple(sorted(found))

    def config_text(self) -> str | None:
        """What config.pbtxt says; None when there is none."""
        return self._text(CONFIG)

    def flavours_text(self) -> str | None:
        """What flavours.json says; None when there is none."""
        return self._text(FLAVOURS)

    def labels(self, file: str) -> tuple[str, ...]:
        """The lines of a label file of this folder."""
        if Path(file).is_absolute() or ".." in Path(file).parts:
            raise Invalid(f"the label file '{file}' is outside the model's folder")
        text = self._text(file)
        if text is None:
            raise Invalid(f"the label file '{file}' does not exist")
        return tuple(text.splitlines())

    def document(self, file: str) -> dict[str, Any] | None:
        """A JSON object of this folder; None when the file does not exist."""
        text = self._text(file)
        if text is None:
            return None
        try:
            value = json.loads(text)
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate is no text
        except (ValueError, RecursionError) as error:
            raise Invalid(f"{file} is not JSON", why=str(error)) from error
        if not isinstance(value, dict):
            raise Invalid(f"{file} must contain a JSON object")
        return value

    def fingerprint(self) -> str:
        """Changes whenever a file of the folder does; cheap: sizes and times, not contents."""
        parts = []
        for path in _walk(self.path, depth=4):
            status = path.lstat()
            parts.append(f"{path.relative_to(self.path)}:{status.st_size}:{status.st_mtime_ns}")
        return "\n".join(parts)

    def _text(self, file: str) -> str | None:
        path = self.path / file
        try:
            if path.stat().st_size > _SMALL:
                raise Invalid(f"{file} is larger than {_SMALL} bytes")
            return path.read_text("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise Invalid(f"{file} is not UTF-8 text") from error


def model_folders(repository: Path) -> tuple[ModelFolder, ...]:
    """Every folder of the repository that may be a model, by name."""
    try:
        entries = sorted(repository.iterdir())
    except OSError as error:
        raise Invalid(
            f"the model repository '{repository}' cannot be read",
            why=error.strerror or str(error),
            try_this="pass another --model-repo DIR",
        ) from error
    return tuple(
        ModelFolder(path) for path in entries if path.is_dir() and not path.name.startswith(".")
    )


def _walk(folder: Path, *, depth: int) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name == "__pycache__":
            continue  # Triton's Python stubs write it
        yield path
        if depth and path.is_dir() and not path.is_symlink():
            yield from _walk(path, depth=depth - 1)
