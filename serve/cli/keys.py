"""`servegate key`: API keys for clients and administrators."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer

from serve.cli.client import AdminClient, author, segment
from serve.cli.credentials import authorization
from serve.cli.models import tell_done
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import as_json, say, table
from serve.cli.server import admin_server
from serve.core.access import Role
from serve.core.errors import CannotStart, Invalid, NoControl
from serve.settings import Settings, load

app = typer.Typer(
    no_args_is_help=True,
    help="Manage API keys.\n\nExample: servegate key create --role predictor --models 'digits*'",
    rich_markup_mode=None,
)
State = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Folder for runtime state (default: .servegate)."),
]
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


class KeyStore(Protocol):
    """Where keys are: behind the admin API, or in the store of a gateway that stands still."""

    def all(self) -> list[dict[str, Any]]:
        """All keys."""

    def create(
        self, role: Role, models: list[str], expires_in: float | None, note: str
    ) -> dict[str, Any]:
        """Make one; the answer has its `id` and the `key` itself."""

    def revoke(self, identity: str) -> dict[str, Any]:
        """Revoke one."""


@app.callback()
def group() -> None:
    """Manage API keys. Once a key exists, calls need one.

    Example: servegate key create --role predictor --models 'digits*' --expires 30d
    """


@app.command("create")
def create_key(
    role: Annotated[
        Role,
        typer.Option(help="Role of the key: predictor (may call models) or admin (full access)."),
    ],
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERNS",
            help="Models that the key may call, as comma-separated patterns such as 'digits*' "
            "(repeatable; default: all).",
        ),
    ] = None,
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Time until the key expires, for example 90m, 12h, 30d or 2w (default: never).",
        ),
    ] = None,
    note: Annotated[
        str, typer.Option(metavar="TEXT", help="Purpose of the key, shown by `key ls`.")
    ] = "",
    reason: Reason = "",
    state: State = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Create an API key and print it. It is shown only once.

    If no gateway is running, the command writes the key directly to the store, and the key takes
    effect the next time the gateway starts.

    Example: servegate key create --role predictor --models 'digits*' --expires 30d --note 'the app'
    """
    patterns = [part for text in models or ["*"] for part in text.split(",")]
    with _keys(state, admin_url, key_file, reason) as (keys, where):
        made = keys.create(role, patterns, seconds_of(expires), note)
    if json:
        as_json(made)
    else:
        print(made["key"])
    _tell(made, f"created {role} key {made['id']}", where)
    say("store the key now: it is not shown again")


@app.command("ls")
def list_keys(
    state: State = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """List all API keys, without their secrets.

    Example: servegate key ls
    """
    with _keys(state, admin_url, key_file, "") as (keys, _):
        found = keys.all()
    if json:
        as_json(found)
        return
    table(
        ("KEY", "ROLE", "MODELS", "STATE", "EXPIRES", "CREATED", "AUTHOR", "NOTE"),
        [
            (
                key["id"],
                key["role"],
                " ".join(key["models"]),
                key["state"],
                _minute(key["expires"]) if key["expires"] else "never",
                _minute(key["created"]),
                key["author"],
                key["note"],
            )
            for key in found
        ],
    )


@app.command("revoke")
def revoke_key(
    identity: Annotated[
        str, typer.Argument(metavar="ID", help="ID of the key, as `key ls` shows it.")
    ],
    reason: Reason = "",
    state: State = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Revoke an API key. The command returns once every gateway worker refuses the key.

    Example: servegate key revoke 3f9c01ab27
    """
    if identity.startswith("sg_"):
        raise Invalid(
            "revoke expects the id of the key, not the key",
            why="every user of this machine could read a key on the command line",
            try_this="servegate key ls",
        )
    with _keys(state, admin_url, key_file, reason) as (keys, where):
        answer = keys.revoke(identity)
    if json:
        as_json(answer)
    _tell(answer, f"revoked key {identity}", where)


def seconds_of(text: str | None) -> float | None:
    """A time as people write it, `30d` or `12h`, in seconds; None for none."""
    if text is None:
        return None
    match = re.fullmatch(r"([1-9][0-9]{0,8})([smhdw])", text)
    if match is None:
        raise Invalid(f"'{text}' is not a valid duration", try_this="90m, 12h, 30d or 2w")
    return float(match[1]) * _UNITS[match[2]]


class Remote:
    """The keys behind the admin API."""

    def __init__(self, admin: AdminClient) -> None:
        self._admin = admin

    def __repr__(self) -> str:
        return f"<Remote keys of {self._admin!r}>"

    def all(self) -> list[dict[str, Any]]:
        """See `KeyStore`."""
        found: list[dict[str, Any]] = self._admin.get("/api/keys")
        return found

    def create(
        self, role: Role, models: list[str], expires_in: float | None, note: str
    ) -> dict[str, Any]:
        """See `KeyStore`."""
        body = {"role": role.value, "models": models, "expires_in": expires_in, "note": note}
        made: dict[str, Any] = self._admin.post("/api/keys", body)
        return made

    def revoke(self, identity: str) -> dict[str, Any]:
        """See `KeyStore`."""
        answer: dict[str, Any] = self._admin.delete(f"/api/keys/{segment(identity)}")
        return answer


@contextlib.contextmanager
def _keys(
    state: str | None, url: str | None, key_file: Path | None, reason: str
) -> Iterator[tuple[KeyStore, str]]:
    """The keys, and the store's folder when they are in the store of a gateway that stands still.

    Only where no setting names an address: another machine's gateway has no store here.
    """
    settings = load({"state": state}, os.environ, Path.cwd()).settings
    server = admin_server(url, state=state)
    shown = authorization(server.url, key_file, settings)
    admin = AdminClient(server, reason=reason, authorization=shown)
    is_named = url is not None or settings.admin_url or settings.control
    silence = None if is_named else _silence(admin)
    if silence is None:
        yield Remote(admin), ""
        return
    with _at_rest(settings, silence, reason) as keys:
        yield keys, str(settings.state_path)


def _silence(admin: AdminClient) -> NoControl | None:
    """Why nobody answers; None when a control plane does."""
    try:
        admin.live()
    except NoControl as error:
        return error
    return None


@contextlib.contextmanager
def _at_rest(settings: Settings, silence: NoControl, reason: str) -> Iterator[KeyStore]:
    from serve.app.offline import keys_at_rest  # SQL takes a while to import

    with contextlib.ExitStack() as stack:
        try:
            keys = stack.enter_context(keys_at_rest(settings, author(), reason))
        except CannotStart as error:
            raise NoControl(
                silence.what,
                why=f"{silence.why}; {error.what}: {error.why}",
                try_this="--admin-url URL if it uses another address, or SERVEGATE_CACERT for TLS",
            ) from error
        yield keys


def _tell(answer: dict[str, Any], what: str, where: str) -> None:
    if where:
        say(f"{what} in the store of {where}; it takes effect when the gateway starts")
    else:
        tell_done(answer, what)


def _minute(text: str) -> str:
    """An RFC 3339 time, cut to minutes: `2030-01-31 12:00Z`."""
    return f"{text[:10]} {text[11:16]}Z"
