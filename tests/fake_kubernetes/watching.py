"""A watch: one answer without end, a line for each change of what it is of.

It begins after the resource version that it names (with all that is there, if it names none), and
ends when its time is over, when the client goes, or when a test breaks it off. A version that is
forgotten makes an ERROR line with a Status of 410, as in Kubernetes.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from aiohttp import web

from fake_kubernetes.kinds import Kind
from fake_kubernetes.objects import Event, Objects
from fake_kubernetes.refusals import Refusal, too_old
from fake_kubernetes.selecting import Test

Object = dict[str, Any]


class Watch:
    """One of them. `lines` are waiting to be sent; None ends it."""

    def __init__(
        self, objects: Objects, kind: Kind, namespace: str, test: Test, query: Mapping[str, str]
    ) -> None:
        self.kind = kind
        self._objects = objects
        self._namespace = namespace
        self._test = test
        self._wants_bookmarks = query.get("allowWatchBookmarks") in ("1", "true")
        self._seconds = float(query.get("timeoutSeconds") or 1800)
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._transport: asyncio.Transport | None = None
        self._begin(_number(query.get("resourceVersion") or "0"))

    def __repr__(self) -> str:
        return f"<Watch of {self.kind.resource} in {self._namespace or 'all namespaces'}>"

    def _begin(self, version: int) -> None:
        if version == 0:
            for each in self._objects.listed(self.kind, self._namespace):
                if self._test(each):
                    self._say("ADDED", each)
        elif version < self._objects.forgotten:
            self._say("ERROR", too_old(version, self._objects.forgotten).status)
            self.end()
        else:
            for event in self._objects.since(version):
                self.tell(event)

    def tell(self, event: Event) -> None:
        """Of a change, seen through the selectors: what comes into view is added."""
        if event.kind is not self.kind:
            return
        was, is_now = self._sees(event.old), self._sees(event.new)
        if is_now:
            self._say("MODIFIED" if was else "ADDED", event.new or {})
        elif was:
            self._say("DELETED", _at(event.new or event.old or {}, event.version))

    def bookmark(self) -> None:
        """Say how far it is, if it was asked for."""
        if self._wants_bookmarks:
            metadata = {"resourceVersion": str(self._objects.version), "creationTimestamp": None}
            named = {"kind": self.kind.name, "apiVersion": self.kind.api_version}
            self._say("BOOKMARK", {**named, "metadata": metadata})

    def end(self) -> None:
        """Say goodbye, as when its time is over."""
        self._lines.put_nowait(None)

    def break_off(self) -> None:
        """As when the network fails."""
        if self._transport is not None:
            self._transport.abort()
        self.end()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Send the lines as they come."""
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        self._transport = request.transport
        with suppress(ConnectionError):  # it was broken off
            await response.prepare(request)
            await self._send(response)
            await response.write_eof()
        return response

    async def _send(self, response: web.StreamResponse) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                while (line := await self._lines.get()) is not None:
                    await response.write(line)
        except TimeoutError:
            self.bookmark()
            while (line := self._waiting()) is not None:
                await response.write(line)

    def _waiting(self) -> bytes | None:
        return None if self._lines.empty() else self._lines.get_nowait()

    def _sees(self, each: Object | None) -> bool:
        if each is None or not self._test(each):
            return False
        return self._namespace in ("", each["metadata"].get("namespace", ""))

    def _say(self, word: str, each: Object) -> None:
        self._lines.put_nowait(json.dumps({"type": word, "object": each}).encode() + b"\n")


def _number(version: str) -> int:
    try:
        return int(version)
    except ValueError as error:
        raise Refusal(400, f"invalid resource version {version!r}: not a number") from error


def _at(each: Object, version: int) -> Object:
    """An object that is gone carries the version at which it went."""
    return {**each, "metadata": {**each["metadata"], "resourceVersion": str(version)}}
