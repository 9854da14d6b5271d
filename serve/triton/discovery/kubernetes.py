"""Kubernetes: lists and watches the EndpointSlices of a namespace that carry a pool's label.

| the API server                               | what is done                                     |
|----------------------------------------------|--------------------------------------------------|
| ends the watch, or the connection breaks     | watch again from the last version                |
| says 410, by its status or in an ERROR event | list anew                                        |
| refuses otherwise, or is not there           | told; what was known stays; list or watch again  |
| says nothing for longer than it was asked to | as if the connection had broken                  |

Attempts that go wrong have pauses between them, up to ten seconds, with chance in them. A watch
is asked to end within a minute: so a connection that is dead is noticed, and the token, which
Kubernetes replaces while we run, is read again. Why this is our own code and no client library:
docs/decisions/0026.

Watching: what is known of all EndpointSlices, from a list and the events after it.

    list ──▶ version 41, all slices ──▶ watch from 41 ──▶ event 42 ──▶ event 43 ──▶ the watch ends
      ▲                                      ▲                                           │
      │                                      └────────── watch from 43 ──────────────────┘
      └── 410: nobody remembers 43 any more, or the watch is refused for another reason

Nothing here does any input or output (`kubernetes.py` does). Source of the rules:
kubernetes.io/docs/reference/using-api/api-concepts, "Efficient detection of changes".
"""

import asyncio
import json
import logging
import random
import ssl
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from serve.core.discovery import ByKubernetes
from serve.core.errors import CannotStart, Unavailable
from serve.triton.discovery.endpoints import POOL, Listing, read
from serve.triton.discovery.source import Listener

# --- watching -------------------------------------------------------------------------------------


_LEAST, _MOST = 0.25, 10.0  # seconds


def pause(tries: int, draw: float) -> float:
    """Seconds until the next attempt, after so many that went wrong; `draw` from 0 to 1."""
    return min(_MOST, _LEAST * 2.0 ** min(tries, 10)) * (0.5 + draw / 2)


class Slices:
    """The slices by name, the newest last. `version` is where a watch goes on; empty: list first.

    What it holds stays until a whole new list has come.
    """

    def __init__(self) -> None:
        self.version = ""
        self._slices: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"<Slices {len(self._slices)} version={self.version or None}>"

    @property
    def listing(self) -> Listing:
        """What they say together."""
        return read(self._slices.values())

    def begin(self, items: Iterable[Any], version: str) -> None:
        """This is the whole list, as of a version."""
        slices = sorted(items, key=_age)
        self._slices = {str(one["metadata"]["name"]): one for one in slices}
        self.version = version

    def forget(self) -> None:
        """The next thing to do is to list anew."""
        self.version = ""

    def apply(self, kind: str, found: Mapping[str, Any]) -> bool:
        """Something has happened to a slice; whether it was more than that time has passed."""
        metadata = found["metadata"]
        self.version = str(metadata["resourceVersion"])
        if kind not in ("ADDED", "MODIFIED", "DELETED"):
            return False  # a BOOKMARK, or what nobody knows yet
        self._slices.pop(str(metadata["name"]), None)
        if kind != "DELETED":
            self._slices[str(metadata["name"])] = found
        return True


def _age(one: Any) -> int:
    """Versions are compared as whole numbers, which Kubernetes promises since 1.35."""
    version = str(one["metadata"].get("resourceVersion") or "")
    return int(version) if version.isascii() and version.isdigit() else 0


class LineBuffer:
    """Puts lines together from the pieces in which they come; half a line comes again later."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._rest = bytearray()

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that are whole by now; `ValueError` for one that is longer than it may be."""
        self._rest += piece
        if b"\n" not in piece:
            whole: list[bytes] = []
        else:
            *parts, rest = self._rest.split(b"\n")
            whole = [bytes(one) for one in parts if one.strip()]
            self._rest = bytearray(rest)
        if max(map(len, (*whole, self._rest))) > self._longest:
            raise ValueError(f"a line of more than {self._longest} bytes")
        return whole


# --- kubernetes -----------------------------------------------------------------------------------


ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_PAGE = 100  # slices
_LIST = 60.0  # seconds for a whole list
_WATCH = 40.0  # seconds, and by chance up to half as much again
_CONNECT, _SILENCE = 5.0, 10.0  # seconds; the second over what a watch was asked to last
_LONG = 1.0  # seconds after which a watch was a good one
_LARGEST = 1 << 26  # bytes of a page
_LONGEST = 1 << 23  # bytes of an event; etcd takes objects of 1.5 MiB
_MESSAGE = 4096  # bytes of a refusal that are read
_log = logging.getLogger("servegate.discovery")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the API server is, and who we are there: nobody in particular without a token."""

    url: str
    namespace: str
    token: Path | None = None
    ca: Path | None = None

    @classmethod
    def of(
        cls, place: ByKubernetes, environ: Mapping[str, str], account: Path = ACCOUNT
    ) -> "Cluster":
        """The one that was named, or the one that this pod runs in."""
        if place.url:
            return cls(place.url.rstrip("/"), place.namespace)
        host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
        if not host or not port:
            raise _not_in_a_pod("KUBERNETES_SERVICE_HOST and _PORT are not set")
        try:
            namespace = place.namespace or (account / "namespace").read_text("utf-8").strip()
            (account / "token").read_bytes()
        except OSError as error:
            raise CannotStart(
                "this pod has no service account for discovering Tritons",
                why=str(error),
                try_this="set serviceAccountName: servegate-control and "
                "automountServiceAccountToken: true in its specification",
            ) from error
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", namespace, account / "token", account / "ca.crt")

    def headers(self) -> dict[str, str]:
        """What every request shows: the token as it is now."""
        shown = {"accept": "application/json", "accept-encoding": "identity"}
        if self.token is not None:
            shown["authorization"] = f"Bearer {self.token.read_text('utf-8').strip()}"
        return shown

    def trust(self) -> ssl.SSLContext | bool:
        """Whose certificate the API server may have."""
        return True if self.ca is None else ssl.create_default_context(cafile=str(self.ca))


class _Expired(Exception):
    """The API server does not remember the version that was asked for."""


class EndpointSlices:
    """The source. `draw` gives numbers from 0 to 1, `clock` monotonic seconds."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        draw: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._sleep = sleep
        self._draw = draw
        self._clock = clock
        self._slices = Slices()
        path = f"/apis/discovery.k8s.io/v1/namespaces/{cluster.namespace}/endpointslices"
        self._url = cluster.url + path

    def __repr__(self) -> str:
        return f"<EndpointSlices {self._url} {self._slices}>"

    async def run(self, listener: Listener) -> None:
        """See `Source`."""
        tries = 0
        while True:
            began = self._clock()
            try:
                await self._round(listener)
            except _Expired as error:
                _log.info("%s: listing again: %s", self._url, error)
            except Unavailable as error:
                listener.failed(error)
            tries = 0 if self._clock() - began >= _LONG else tries + 1
            await self._sleep(pause(tries, self._draw()))

    async def _round(self, listener: Listener) -> None:
        """List if need be, and watch to the end. `Unavailable` says what is wrong."""
        try:
            connector = aiohttp.TCPConnector(ssl=self._cluster.trust())
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT, sock_read=_SILENCE)
            async with aiohttp.ClientSession(
                connector=connector, headers=self._cluster.headers(), timeout=timeout
            ) as session:
                if not self._slices.version:
                    async with asyncio.timeout(_LIST):
                        await self._list(session)
                    listener.told(self._slices.listing)
                await self._watch(session, listener)
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise Unavailable(f"{self._cluster.url} does not answer", why=why) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            self._slices.forget()
            what = f"{self._cluster.url} does not answer like a Kubernetes API server"
            raise Unavailable(what, why=repr(error)[:500]) from error

    async def _list(self, session: aiohttp.ClientSession) -> None:
        items: list[Any] = []
        asked = {"labelSelector": POOL, "limit": str(_PAGE)}
        while True:
            async with session.get(self._url, params=asked, allow_redirects=False) as answer:
                await self._require(answer)
                page = json.loads(await _body(answer))
            items += page.get("items") or ()
            metadata = page["metadata"]
            if not metadata.get("continue"):
                self._slices.begin(items, str(metadata["resourceVersion"]))
                return
            asked["continue"] = str(metadata["continue"])

    async def _watch(self, session: aiohttp.ClientSession, listener: Listener) -> None:
        seconds = round(_WATCH * (1 + self._draw() / 2))
        asked = {
            "labelSelector": POOL,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._slices.version,
            "timeoutSeconds": str(seconds),
        }
        silence = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT, sock_read=seconds + _SILENCE
        )
        async with session.get(
            self._url, params=asked, timeout=silence, allow_redirects=False
        ) as answer:
            await self._require(answer)
            listener.well()
            whole = LineBuffer(_LONGEST)
            try:
                async for piece in answer.content.iter_any():
                    for line in whole.feed(piece):
                        self._take(json.loads(line), listener)
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                _log.debug("%s: the watch broke: %s", self._url, error or type(error))

    def _take(self, event: Any, listener: Listener) -> None:
        kind, found = str(event["type"]), event["object"]
        if kind == "ERROR":
            raise self._refusal(int(found.get("code") or 500), str(found.get("message") or ""))
        if self._slices.apply(kind, found):
            listener.told(self._slices.listing)

    async def _require(self, answer: aiohttp.ClientResponse) -> None:
        if answer.status != 200:
            raise self._refusal(answer.status, _message(await answer.content.read(_MESSAGE)))

    def _refusal(self, status: int, message: str) -> Exception:
        """What to raise; whatever it is, the next thing to do is to list."""
        self._slices.forget()
        if status == 410:
            return _Expired(message)
        what, try_this = _REFUSALS.get(status, (f"the API server responded with {status}", ""))
        what, try_this = (
            text.format(namespace=self._cluster.namespace) for text in (what, try_this)
        )
        return Unavailable(what, why=message[:500], try_this=try_this)


_REFUSALS = {
    401: (
        "the API server rejects this pod's token",
        "wait if the token was just replaced, or check the pod's service account",
    ),
    403: (
        "this pod is not allowed to read the EndpointSlices of namespace {namespace}",
        "create a Role with get, list and watch of endpointslices (discovery.k8s.io) in namespace "
        "{namespace}, and a RoleBinding to service account servegate-control, as in k8s/base",
    ),
    404: (
        "there are no EndpointSlices at this address",
        "use Kubernetes 1.21 or newer, and the URL of its API server",
    ),
}


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    found = bytearray()
    async for chunk in answer.content.iter_any():
        found += chunk
        if len(found) > _LARGEST:
            raise ValueError(f"a response of more than {_LARGEST} bytes")
    return bytes(found)


def _message(body: bytes) -> str:
    """What a refusal says for people, if anything."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace").strip()


def _not_in_a_pod(why: str) -> CannotStart:
    return CannotStart(
        "discovery by Kubernetes needs to run in a pod",
        why=why,
        try_this="pass --discover kubernetes=http://127.0.0.1:8001/NAMESPACE and run kubectl proxy",
    )
