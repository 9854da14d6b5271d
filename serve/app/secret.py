"""The secret that workers show to the control plane, kept in the state folder with mode 0600."""

import contextlib
import os
import secrets

from serve.app.paths import SECRET_FILE
from serve.settings import Settings


def shared_secret(settings: Settings) -> str:
    """The secret as it was given, else the one of the state folder, which is made when missing."""
    if settings.secret:
        return settings.secret
    path = settings.state_path / SECRET_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{SECRET_FILE}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        return path.read_text("ascii").strip()
    descriptor = os.open(scratch, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))
    with contextlib.suppress(FileExistsError):
        os.link(scratch, path)  # whole or not at all, and the first of several processes wins
    scratch.unlink()
    return path.read_text("ascii").strip()
