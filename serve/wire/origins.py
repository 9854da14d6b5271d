"""Cross-site requests: pages of other sites change nothing here with a visitor's rights.

Browsers state where a request comes from, in `Sec-Fetch-Site` or `Origin`; a page can forge
neither. One decision for every port:

| a request that changes something     | passes                           |
|--------------------------------------|----------------------------------|
| with `Sec-Fetch-Site`                | if it is `same-origin` or `none` |
| with `Origin` alone                  | if it names the request's `Host` |
| with neither, as programs send it    | always                           |

`Origin` and `Host` also agree when the name of a page has been pointed at this machine (DNS
rebinding). That takes a registered name, so a port that is open to every program of this machine
accepts only hosts that cannot be registered: IP addresses, `localhost`, names below it, and names
without a dot.
"""

import ipaddress
import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import urlsplit

from serve.core.errors import BadRequest, Forbidden

_HOST = re.compile(rb"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
_REMEMBERED = 1024  # hosts
_OURS = (b"same-origin", b"none")


class CrossSite(Forbidden):
    """A page of another site asks for a change."""

    def __init__(self) -> None:
        super().__init__(
            "the request comes from a web page of another site",
            why="such pages may not make changes here",
            try_this="use this gateway's own pages, or a client that is not a browser",
        )


class ForeignHost(Forbidden):
    """A port that only this machine may use is called by a name that others can register."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"the Host '{host}' is not a name of this machine",
            why="this port needs no API key, so a web page under that name could use it",
            try_this="use http://localhost, or an API key (servegate key create)",
        )


def is_cross_site(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a browser sends the request for a page of another site; names are in lower case."""
    sites = [value for name, value in headers if name == b"sec-fetch-site"]
    if sites:
        return any(site not in _OURS for site in sites)
    hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
    origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
    return any(_host(origin) not in hosts for origin in origins)


def host_of(headers: Sequence[tuple[bytes, bytes]], version: str) -> str:
    """The name in the request's Host; `BadRequest` unless there is exactly one, and it is a host.

    HTTP/1.0 requires none. Source: RFC 9112 3.2.
    """
    hosts = [value for name, value in headers if name == b"host"]
    if len(hosts) == 1:
        return _name(hosts[0])
    if hosts or version != "1.0":
        raise BadRequest(
            f"the request has {len(hosts) or 'no'} Host headers", try_this="send exactly one"
        )
    return ""


@lru_cache(_REMEMBERED)
def check_local(name: str) -> None:
    """`ForeignHost` unless the name in a Host can only be one of this machine."""
    host = name.lower()
    if "." not in host or host.endswith(".localhost"):
        return
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        raise ForeignHost(host) from None


@lru_cache(_REMEMBERED)
def _name(host: bytes) -> str:
    match = _HOST.fullmatch(host.strip())
    if match is None:
        raise BadRequest("the Host header is not a valid host")
    return match[1].decode("ascii")


def _host(origin: str) -> str | None:
    """The host that an Origin names; None where it names none, as `null` does."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None
