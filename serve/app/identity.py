"""The gateway's random id: made with its store, and copied into the state folder at each start.

A command that runs in the folder compares it with the id that the admin API returns, before it
changes anything. It is in the store because all control planes of one PostgreSQL store are one
gateway.
"""

import contextlib
import os

from serve.app.paths import GATEWAY_FILE
from serve.settings import Settings


def remember_gateway(settings: Settings, identity: str) -> None:
    """Write the id into the state folder, where commands look for it."""
    path = settings.state_path / GATEWAY_FILE
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    scratch = path.with_name(f"{GATEWAY_FILE}.{os.getpid()}")
    scratch.write_text(identity, "ascii")
    scratch.replace(path)


def known_gateway(settings: Settings) -> str:
    """The id of the gateway that ran on this state folder; empty where none has, or none says."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return (settings.state_path / GATEWAY_FILE).read_text("ascii").strip()
    return ""
