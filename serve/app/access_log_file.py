"""Where access-log lines go: a file that others may rotate away, or the program's own log.

Several workers append to one file. A write of whole lines to a file that is open for appending is
never torn apart by another's (write(2)). No call waits for its line, or fails because of it: what
cannot be written is counted and forgotten.
"""

import logging
import os
from pathlib import Path

_log = logging.getLogger("servegate.access")
_STDERR = 2


class LogFile:
    """A file to append to; None is the program's log, which is stderr."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._identity = (0, 0)
        self._is_torn = False  # the last line was not written to its end
        self._is_failing = False

    def __repr__(self) -> str:
        return f"<LogFile {self._path or 'stderr'}>"

    def write(self, lines: bytes) -> bool:
        """Append whole lines; whether they are all there."""
        try:
            descriptor = _STDERR if self._path is None else self._opened(self._path)
            data = b"\n" + lines if self._is_torn else lines
            while data:
                data = data[os.write(descriptor, data) :]
                self._is_torn = bool(data)
        except OSError as error:
            if not self._is_failing:
                _log.warning("cannot write to the access log %r: %s", self, error)
            self._is_failing = True
            self.close()
            return False
        if self._is_failing:
            _log.info("the access log %r is writable again", self)
        self._is_failing = False
        return True

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _opened(self, path: Path) -> int:
        """The file that has this name now: whoever rotates gives the old one another name."""
        if self._descriptor is not None:
            try:
                found = path.stat()
                if (found.st_dev, found.st_ino) == self._identity:
                    return self._descriptor
            except FileNotFoundError:
                pass
            self.close()
            self._is_torn = False
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        descriptor = self._descriptor = os.open(path, flags, 0o640)
        made = os.fstat(descriptor)
        self._identity = (made.st_dev, made.st_ino)
        return descriptor
