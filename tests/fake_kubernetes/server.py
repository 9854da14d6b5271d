"""The fake as a server on loopback, and what tests do with it."""

import asyncio
import copy
import json
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from fake_kubernetes import changing, discovering
from fake_kubernetes.kinds import Address, kind_of, locate
from fake_kubernetes.listing import Pages
from fake_kubernetes.objects import Objects
from fake_kubernetes.refusals import Refusal, of_code, unknown_path
from fake_kubernetes.selecting import selection
from fake_kubernetes.watching import Watch

Object = dict[str, Any]

_HOST = "127.0.0.1"
_LARGEST = 8 << 20
_LOGGED = 10_000
_PATIENCE = 20.0
_NAMESPACES = ("default", "kube-system")


@dataclass(frozen=True, slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    query: Mapping[str, str]
    token: str
    agent: str

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") in ("1", "true")


class FakeApi:
    """The API of a cluster in which nothing runs: it keeps objects, and tells of their changes.

    `token`: the bearer token that has to be shown; it may be changed while the fake runs.
    `bookmark_s`: between the bookmarks of watches that ask for them.
    What is not to be awaited is synchronous, and belongs to the event loop in which the fake runs.
    """

    def __init__(
        self,
        *,
        port: int = 0,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        bookmark_s: float = 60.0,
    ) -> None:
        self.token = token
        self.requests: deque[Asked] = deque(maxlen=_LOGGED)
        self._objects = Objects()
        self._pages = Pages()
        self._watches: set[Watch] = set()
        self._refused = 0
        self._stirred = asyncio.Event()
        self._port = port
        self._tls = tls
        self._bookmark_s = bookmark_s
        self._bookmarks: asyncio.Task[None] | None = None
        self._runner: web.AppRunner | None = None
        self._objects.listeners.append(self._tell)
        for name in _NAMESPACES:
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def __repr__(self) -> str:
        return f"<FakeApi at {self.url}: {self._objects!r}, {len(self._watches)} watches>"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{_HOST}:{self._port}"

    @property
    def version(self) -> int:
        """The newest resource version."""
        return self._objects.version

    async def __aenter__(self) -> Self:
        application = web.Application(client_max_size=_LARGEST)
        application.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(application, handler_cancellation=True, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, _HOST, self._port, ssl_context=self._tls)
        await site.start()
        self._port = self._runner.addresses[0][1]
        self._bookmarks = asyncio.create_task(self._bookmark_regularly())
        return self

    async def __aexit__(self, *exception: object) -> None:
        assert self._runner is not None and self._bookmarks is not None
        self._bookmarks.cancel()
        with suppress(asyncio.CancelledError):
            await self._bookmarks
        self.drop_watches()
        await self._runner.cleanup()

    # --- the objects ---------------------------------------------------------------------------

    def put(self, given: Object) -> Object:
        """Create or replace an object, whatever the API would say; what it became."""
        return copy.deepcopy(self._objects.put(given))

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        return copy.deepcopy(self._objects.get(kind_of(kind), namespace, name))

    def objects(self, kind: str, namespace: str = "") -> list[Object]:
        """All of a kind; in one namespace, if it is named."""
        return copy.deepcopy(self._objects.listed(kind_of(kind), namespace))

    def delete(self, kind: str, namespace: str, name: str) -> None:
        if self._objects.delete(kind_of(kind), namespace, name) is None:
            raise KeyError(f"there is no {kind} {namespace}/{name}")

    # --- what goes wrong -----------------------------------------------------------------------

    def expire(self) -> None:
        """Forget history: who wants to go on from before this is told 410. Open watches go on."""
        self._objects.forget()
        self._pages.forget()

    def drop_watches(self) -> None:
        """Break off every open watch, as a network does that fails."""
        for watch in tuple(self._watches):
            watch.break_off()

    def end_watches(self) -> None:
        """End every open watch properly, as a server does that has had it open for long enough."""
        for watch in tuple(self._watches):
            watch.end()

    def bookmark(self) -> None:
        """Send a bookmark now to every watch that asked for them."""
        for watch in tuple(self._watches):
            watch.bookmark()

    def refuse(self, status: int) -> None:
        """Answer every request with this status; open watches stay."""
        self._refused = status

    def answer_again(self) -> None:
        self._refused = 0

    # --- what was asked ------------------------------------------------------------------------

    async def asked(self, count: int) -> None:
        """Wait until there were so many requests in all."""
        await self._until(lambda: len(self.requests) >= count)

    async def watched(self, count: int = 1) -> None:
        """Wait until so many watches are open."""
        await self._until(lambda: len(self._watches) == count)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(_PATIENCE):
            while not is_so():
                await self._stirred.wait()

    def _stir(self) -> None:
        self._stirred.set()
        self._stirred = asyncio.Event()

    # --- answers -------------------------------------------------------------------------------

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = _asked(request)
        self.requests.append(asked)
        self._stir()
        try:
            self._admit(asked)
            address = locate(asked.path)
            if address is not None and asked.method == "GET" and asked.is_watch:
                return await self._watch(request, address, asked.query)
            return self._page(asked, address, await request.read(), request.content_type)
        except Refusal as refusal:
            seconds = refusal.status["details"].get("retryAfterSeconds")
            headers = {"Retry-After": str(seconds)} if seconds else {}
            return _json(refusal.status, refusal.code, headers)

    def _admit(self, asked: Asked) -> None:
        if self._refused:
            raise of_code(self._refused)
        if self.token and asked.token != self.token:
            raise of_code(401 if asked.token else 403)

    def _page(
        self, asked: Asked, address: Address | None, body: bytes, form: str
    ) -> web.StreamResponse:
        objects, query = self._objects, asked.query
        if address is None:
            found = discovering.page(asked.path) if asked.method == "GET" else None
            if found is None:
                raise unknown_path()
            return _json(found)
        match asked.method, bool(address.name):
            case "GET", True:
                return _json(changing.existing(objects, address))
            case "GET", False:
                return _json(self._list(address, query))
            case "POST", False:
                return _json(changing.create(objects, address, body, query), 201)
            case "PUT", True:
                return _json(changing.replace(objects, address, body, query))
            case "PATCH", True:
                return _json(changing.patch(objects, address, body, query, form))
            case "DELETE", True:
                return _json(changing.delete(objects, address, query))
        raise Refusal(405, "the server does not allow this method on the requested resource")

    def _list(self, address: Address, query: Mapping[str, str]) -> Object:
        limit = int(query.get("limit") or 0)
        if query.get("continue"):
            return self._pages.next(address.kind, query["continue"], limit)
        test = selection(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        return self._pages.first(self._objects, address.kind, address.namespace, test, limit)

    async def _watch(
        self, request: web.Request, address: Address, query: Mapping[str, str]
    ) -> web.StreamResponse:
        fields = query.get("fieldSelector", "")
        if address.name:
            fields = f"{fields},metadata.name={address.name}"
        test = selection(query.get("labelSelector", ""), fields)
        watch = Watch(self._objects, address.kind, address.namespace, test, query)
        self._watches.add(watch)
        self._stir()
        try:
            return await watch.answer(request)
        finally:
            self._watches.discard(watch)
            self._stir()

    def _tell(self, event: Any) -> None:
        for watch in self._watches:
            watch.tell(event)

    async def _bookmark_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._bookmark_s)
            self.bookmark()


def _asked(request: web.Request) -> Asked:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return Asked(
        method=request.method,
        path=request.path,
        query=dict(request.query),
        token=token.strip() if scheme.lower() == "bearer" else "",
        agent=request.headers.get("User-Agent", ""),
    )


def _json(page: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(
        body=json.dumps(page).encode(),
        status=status,
        headers=headers,
        content_type="application/json",
    )
