"""Several files in one request: multipart/form-data (RFC 7578), written to one file as they come.

Nothing is held in memory but fields, which are short, and where each file begins.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from python_multipart.exceptions import MultipartParseError
from python_multipart.multipart import MultipartParser, parse_options_header

from serve.control.artifacts.durable import telling
from serve.core.errors import BodyTooLarge, Invalid
from serve.workbench.evaluation.formats.bundle import MOST_FILES, BundlePart
from serve.workbench.evaluation.rows import LARGEST

MULTIPART = "multipart/form-data"
_MOST_FIELDS = 64 << 10  # bytes of all fields
_MOST_HEADERS = 8 << 10  # bytes of those of one part


@dataclass(slots=True)
class Arrived:
    """What has come: fields by name, and the files, which lie behind each other in `path`."""

    path: Path
    fields: dict[str, str] = field(default_factory=dict)
    parts: list[BundlePart] = field(default_factory=list)


async def receive_file(stream: AsyncIterator[bytes], path: Path, *, most: int = LARGEST) -> None:
    """Write a body of at most so many bytes; `BodyTooLarge`, `NoSpace`."""
    size = 0
    with telling("the dataset"):
        file = await asyncio.to_thread(path.open, "xb")
        with file:
            async for piece in stream:
                size += len(piece)
                if size > most:
                    raise _too_large(most)
                await asyncio.to_thread(file.write, piece)


async def receive_parts(
    content_type: str, stream: AsyncIterator[bytes], path: Path, *, most: int = LARGEST
) -> Arrived:
    """Take a body of several parts apart; `Invalid` for one that is none."""
    kind, options = parse_options_header(content_type)
    if kind != MULTIPART.encode() or not options.get(b"boundary"):
        raise Invalid(
            f"the content type '{content_type[:100]}' is not {MULTIPART}",
            try_this="PUT /api/datasets/{name}?format=csv for a file alone",
        )
    arrived = Arrived(path)
    try:
        with telling("the dataset"):
            file = await asyncio.to_thread(path.open, "xb")
            with file:
                reader = _Reader(options[b"boundary"], arrived, file.write, most)
                async for piece in stream:
                    await asyncio.to_thread(reader.take, piece)
        reader.end()
    except (MultipartParseError, UnicodeDecodeError) as error:
        raise Invalid(f"the body is not {MULTIPART}", why=str(error)) from error
    return arrived


class _Reader:
    """Writes the bytes of files, and remembers everything else."""

    def __init__(
        self, boundary: bytes, arrived: Arrived, write: Callable[[bytes], int], most: int
    ) -> None:
        self._most = most
        self._arrived = arrived
        self._write = write
        self._size = self._fields = self._start = self._position = self._headers = 0
        self._name = self._filename = ""
        self._header = self._value = b""
        self._text = bytearray()
        self._is_file = self._has_ended = False
        self._parser = MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_part_data": self._data,
                "on_part_end": self._end,
                "on_header_field": self._on_field,
                "on_header_value": self._on_value,
                "on_header_end": self._header_end,
                "on_end": self._on_end,
            },
        )

    def take(self, piece: bytes) -> None:
        """The next bytes of the body."""
        self._size += len(piece)
        if self._size > self._most:
            raise _too_large(self._most)
        self._parser.write(piece)

    def end(self) -> None:
        """Nothing more comes; `Invalid` when something is missing."""
        self._parser.finalize()
        if not self._has_ended:
            raise Invalid(
                f"the {MULTIPART} body is not complete", why="the last boundary is missing"
            )

    def _begin(self) -> None:
        if len(self._arrived.parts) >= MOST_FILES:
            raise Invalid("the upload has too many files", why=f"at most {MOST_FILES} are allowed")
        self._name = self._filename = ""
        self._text, self._headers, self._is_file = bytearray(), 0, False

    def _on_field(self, data: bytes, start: int, end: int) -> None:
        self._header += self._short(data[start:end])

    def _on_value(self, data: bytes, start: int, end: int) -> None:
        self._value += self._short(data[start:end])

    def _short(self, data: bytes) -> bytes:
        self._headers += len(data)
        if self._headers > _MOST_HEADERS:
            raise Invalid(
                "the headers of a part are too long",
                why=f"at most {_MOST_HEADERS} bytes are allowed",
            )
        return data

    def _header_end(self) -> None:
        if self._header.lower() == b"content-disposition":
            _, options = parse_options_header(self._value)
            self._name = options.get(b"name", b"").decode()
            self._is_file = b"filename" in options
            self._filename = options.get(b"filename", b"").decode()
            self._start = self._position
        self._header = self._value = b""

    def _data(self, data: bytes, start: int, end: int) -> None:
        piece = data[start:end]
        if self._is_file:
            self._write(piece)
            self._position += len(piece)
            return
        self._fields += len(piece)
        if self._fields > _MOST_FIELDS:
            raise Invalid(
                "the form fields are too long", why=f"at most {_MOST_FIELDS} bytes are allowed"
            )
        self._text += piece

    def _end(self) -> None:
        if self._is_file:
            size = self._position - self._start
            if self._filename or size:  # a form without a file sends an empty one
                self._arrived.parts.append(BundlePart(self._filename, self._start, size))
        else:
            self._arrived.fields[self._name] = self._text.decode()

    def _on_end(self) -> None:
        self._has_ended = True


def _too_large(most: int) -> BodyTooLarge:
    error = BodyTooLarge(most)
    error.try_this = "use fewer rows or smaller pictures"
    return error
