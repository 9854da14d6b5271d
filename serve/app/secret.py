"""The secret that workers show to the control plane, kept in the state folder with mode 0600."""

import contextlib
import os
import re
import secrets
from pathlib import Path

from serve.app.paths import SECRET_FILE
from serve.core.errors import CannotStart
from serve.settings import Settings


def shared_secret(settings: Settings) -> str:
    """The secret as it was given, else the one of the state folder, which is made when missing."""
    if settings.secret:
        return settings.secret
    path = settings.state_path / SECRET_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{SECRET_FILE}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        return _checked(path)
    descriptor = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):
        os.link(scratch, path)  # whole or not at all, and the first of several processes wins
    scratch.unlink()
    return _checked(path)


def known_secret(settings: Settings) -> str:
    """The secret for whoever may read it, empty for everybody else; nothing is made."""
    if settings.secret:
        return settings.secret
    try:
        return _checked(settings.state_path / SECRET_FILE)
    except OSError:
        return ""


def _checked(path: Path) -> str:
    secret = path.read_bytes().strip()
    if not re.fullmatch(rb"[!-~]{16,200}", secret):
        raise CannotStart(
            f"{path} does not contain a valid secret",
            why="expected 16 to 200 printable ASCII characters without spaces",
            try_this="remove the file; the next start creates a new secret",
        )
    return secret.decode("ascii")
