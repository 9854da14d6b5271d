"""Addresses: where a process may listen. Beyond this machine's loopback keys and TLS are needed.

| a port that others reach     | may be opened                                                   |
|------------------------------|-----------------------------------------------------------------|
| with `insecure`              | always: the network protects it, says the operator              |
| with `auth` none, or no TLS  | never: nobody is asked for a key, or keys are there for reading |
| a data port                  | once there is a key                                             |
| the admin port               | once there is an admin key, or a `secret` that was given        |

Only the control plane knows the keys: a proxy looks at the settings alone, and asks everybody.
"""

import time
from collections.abc import Collection
from pathlib import Path

from serve.app.paths import store_place
from serve.core.access import ApiKey, Role
from serve.core.errors import CannotStart
from serve.settings import Settings, is_loopback

_ELSE = "listen on 127.0.0.1, or pass --insecure if the network protects the port"


async def require_safe_addresses(
    settings: Settings, *, data: bool = False, admin: bool = False, knows_keys: bool = True
) -> None:
    """Refuse to open ports, data or admin, that others reach and that nothing protects."""
    ports = ((data, settings.host, "data"), (admin, settings.admin_host, "admin"))
    reached = [(host, kind) for wanted, host, kind in ports if wanted and not is_loopback(host)]
    if not reached or settings.insecure:
        return
    _require_keys_and_tls(settings, ", ".join(dict.fromkeys(host for host, _ in reached)))
    has_admin = bool(settings.secret)  # whoever gave it can let others in
    asked = [(host, kind) for host, kind in reached if not (kind == "admin" and has_admin)]
    if knows_keys and asked:
        keys = await kept_keys(settings)
        for host, kind in asked:
            _require_key(host, kind, keys)


async def kept_keys(settings: Settings) -> Collection[ApiKey]:
    """The keys in the store of the state folder that are valid now; none where there is no store.

    A store is brought up to date by this, as by every start.
    """
    place = store_place(settings)
    if isinstance(place, Path) and not place.exists():
        return ()
    from serve.control.decisions import Decisions  # SQL takes a while to import
    from serve.control.storage.store import Store

    store = Store(place, clock=time.time)
    try:
        store.migrate()
        keys = Decisions(await store.read()).keys().values()
    finally:
        store.close()
    now = time.time()
    return [key for key in keys if key.expires is None or key.expires > now]


def _require_keys_and_tls(settings: Settings, hosts: str) -> None:
    if settings.auth == "none":
        raise CannotStart(
            f"listening on {hosts} is not safe",
            why="'auth' is 'none', so every client that reaches the port could use it",
            try_this=f"set 'auth' to 'auto', {_ELSE}",
        )
    if not settings.tls_cert:
        raise CannotStart(
            f"listening on {hosts} is not safe",
            why="without TLS, API keys would cross the network in clear text",
            try_this=f"pass --tls-cert FILE and --tls-key FILE, {_ELSE}",
        )


def _require_key(host: str, kind: str, keys: Collection[ApiKey]) -> None:
    if any(kind == "data" or key.role is Role.ADMIN for key in keys):
        return
    role = Role.PREDICTOR if kind == "data" else Role.ADMIN
    what = "API key" if kind == "data" else "admin key"
    raise CannotStart(
        f"listening on {host} is not safe",
        why=f"there is no {what}, so every client would be refused",
        try_this=f"run servegate key create --role {role}, {_ELSE}",
    )
