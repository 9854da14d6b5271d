"""What commands show to be let in: an API key, or the shared secret of this machine's gateway.

| what is there                          | what is sent                                    |
|----------------------------------------|-------------------------------------------------|
| `--key-file`                           | the key in it                                   |
| `SERVEGATE_KEY`                        | that key                                        |
| a state folder whose secret we can read| the secret, to the admin API on this machine    |

A key is never an argument: every user of the machine could read it in the list of processes.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from serve.app.secret import known_secret
from serve.core.errors import CannotStart, Invalid
from serve.settings import Settings, is_loopback, load

VARIABLE = "SERVEGATE_KEY"
_KEY = re.compile(r"sg_[a-z0-9]{4,32}_[A-Za-z0-9_-]{16,128}")
_LONGEST = 1000  # bytes of a file that holds a key


def api_key(key_file: Path | None, environment: Mapping[str, str] = os.environ) -> str:
    """The key that was given, empty when none was. `Invalid` for what is no key."""
    if key_file is not None:
        return _checked(_read(key_file), "the key file")
    given = environment.get(VARIABLE, "").strip()
    return _checked(given, VARIABLE) if given else ""


def authorization(url: str, key_file: Path | None, settings: Settings | None = None) -> str:
    """The Authorization value for the admin API at `url`; empty when nothing is known.

    The secret goes to this machine only, or to the address that the settings name.
    """
    key = api_key(key_file)
    if key:
        return f"Bearer {key}"
    try:
        settings = settings or load({}, os.environ, Path.cwd()).settings
        secret = known_secret(settings) if _is_own(url, settings) else ""
    except (Invalid, CannotStart):  # whoever needs the settings, or the file, says what is wrong
        return ""
    return f"Bearer {secret}" if secret else ""


def _is_own(url: str, settings: Settings) -> bool:
    try:
        return is_loopback(urlsplit(url).hostname or "") or url.rstrip("/") == settings.control_url
    except ValueError:
        return False


def _read(path: Path) -> str:
    if path.name.startswith("sg_"):
        raise Invalid(
            "--key-file expects a file, not a key",
            why="every user of this machine could read a key on the command line",
            try_this=f"put the key into a file, or into {VARIABLE}",
        )
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode("ascii", "replace").strip()
    except OSError as error:
        raise Invalid(f"cannot read the key file '{path}'", why=str(error.strerror)) from error


def _checked(text: str, where: str) -> str:
    """The text, if it is a key; it is not repeated: it may be a good key with a slip."""
    if not _KEY.fullmatch(text):
        raise Invalid(
            f"{where} does not contain an API key", why="an API key has the form sg_ID_SECRET"
        )
    return text
