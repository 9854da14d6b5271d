"""Which server a command talks to: one rule for every command and every port.

| the first that is set      | admin API                            | data ports                |
|----------------------------|--------------------------------------|---------------------------|
| a flag                     | `--admin-url`                        | `--url`, `--grpc-url` …   |
| a variable                 | `SERVEGATE_ADMIN_URL`                | `SERVEGATE_URL` …         |
| the folder's configuration | `admin_url`, `control`, `admin_port` | `gateway`, `http_port` …  |
| the defaults               | `http://127.0.0.1:8080`              | ports 8000, 8001 and 8002 |

The folder's configuration is `servegate.toml` and the `SERVEGATE_` variables, as `up` reads them.

A folder whose gateway has run also holds that gateway's random id, in its state folder. Changes go
to no other gateway, unless `--admin-url` names it: two folders often use the same port.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from serve.app.identity import known_gateway
from serve.cli.output import say
from serve.core.errors import ServegateError
from serve.settings import Explained, load

VARIABLE = "SERVEGATE_ADMIN_URL"
_ADMIN = ("admin_url", "control", "admin_port", "admin_host", "tls_cert")
_DATA = ("gateway", "http_port", "grpc_port", "metrics_port", "host", "tls_cert")


@dataclass(frozen=True, slots=True)
class AdminServer:
    """An admin API. `source` says which setting named it; empty where a flag or variable did.

    `gateway` is the id of the gateway that must answer before anything is changed, empty for any;
    `folder` is the state folder that holds this id.
    """

    url: str
    source: str = ""
    gateway: str = ""
    folder: str = ""


def admin_server(flag: str | None, *, state: str | None = None) -> AdminServer:
    """The admin API of a command. `state` is the command's own flag for the state folder."""
    if flag is not None:
        return AdminServer(flag)
    variable = os.environ.get(VARIABLE, "")
    try:
        explained = load({"state": state}, os.environ, Path.cwd())
    except ServegateError:
        if variable:  # it says enough, and the check below is only a second look
            return AdminServer(variable)
        raise
    settings = explained.settings
    url = settings.admin_url or settings.control_url
    source = "" if variable else _source(explained, _ADMIN)
    return AdminServer(url, source, known_gateway(settings), str(settings.state_path))


def data_urls(*flags: str | None) -> tuple[tuple[str, ...], str]:
    """The data ports for flags in the order HTTP, gRPC, metrics, and which setting named them.

    The source is empty where flags or variables name all of them.
    """
    if None not in flags:
        return tuple(flag for flag in flags if flag is not None), ""
    explained = load({}, os.environ, Path.cwd())
    found = explained.settings.gateway_urls
    urls = (own if flag is None else flag for flag, own in zip(flags, found, strict=False))
    return tuple(urls), _source(explained, _DATA)


def announced(server: AdminServer) -> AdminServer:
    """Print the server now, for a command that connects to it several times."""
    if server.source:
        say(using(server.url, server.source))
    return replace(server, source="")


def using(url: str, source: str) -> str:
    """What a command prints about a server that it was not given: `using URL (servegate.toml)`."""
    return f"using {url} ({source})"


def _source(explained: Explained, names: Sequence[str]) -> str:
    """Where the first of these settings that is set comes from."""
    sources = (explained.sources[name] for name in names)
    return next((source for source in sources if source != "default"), "default")
