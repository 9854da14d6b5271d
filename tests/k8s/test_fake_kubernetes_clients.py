"""What our own clients meet at the fake API server: lists, watches, and how they fail."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from fake_kubernetes import FakeApi

from k8s.cluster import named

Object = dict[str, Any]


def slice_of(name: str, *, pool: str = "", namespace: str = "servegate") -> Object:
    given = named("discovery.k8s.io/v1", "EndpointSlice", name, namespace=namespace, endpoints=[])
    given["metadata"]["labels"] = {"servegate.dev/pool": pool} if pool else {}
    return given


class Client:
    """Asks as a client of the API does."""

    PATH = "/apis/discovery.k8s.io/v1/namespaces/servegate/endpointslices"

    def __init__(self, api: FakeApi, session: aiohttp.ClientSession) -> None:
        self._api = api
        self._session = session

    async def get(self, **query: str) -> tuple[int, Object]:
        url = self._api.url + self.PATH
        async with self._session.get(url, params=query) as response:
            return response.status, await response.json()

    @asynccontextmanager
    async def watch(self, **query: str) -> AsyncIterator["Lines"]:
        url = self._api.url + self.PATH
        async with self._session.get(url, params={"watch": "true", **query}) as response:
            assert response.status == 200
            yield Lines(response)


class Lines:
    """The lines of a watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response

    async def next(self) -> tuple[str, Object]:
        line = json.loads(await self._response.content.readline())
        return line["type"], line["object"]

    async def name(self) -> tuple[str, str]:
        word, each = await self.next()
        return word, each["metadata"]["name"]

    async def is_over(self) -> bool:
        return await self._response.content.readline() == b""


@asynccontextmanager
async def scene() -> AsyncIterator[tuple[FakeApi, Client]]:
    async with asyncio.timeout(30), FakeApi() as api, aiohttp.ClientSession() as session:
        yield api, Client(api, session)


def test_a_watch_goes_on_where_a_list_ended() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            api.put(slice_of("a"))
            _, page = await client.get()
            api.put(slice_of("b"))
            async with client.watch(resourceVersion=page["metadata"]["resourceVersion"]) as lines:
                assert await lines.name() == ("ADDED", "b")
                api.put(slice_of("a"))
                assert await lines.name() == ("MODIFIED", "a")
                api.delete("EndpointSlice", "servegate", "a")
                word, gone = await lines.next()
                assert (word, gone["metadata"]["resourceVersion"]) == ("DELETED", str(api.version))

    asyncio.run(play())


def test_a_watch_sees_things_come_into_its_view_and_leave_it() -> None:
    async def play() -> None:
        selector = "servegate.dev/pool=gpu"
        async with scene() as (api, client), client.watch(labelSelector=selector) as lines:
            api.put(slice_of("a", pool="gpu", namespace="elsewhere"))
            api.put(slice_of("a"))
            api.put(slice_of("a", pool="gpu"))
            assert await lines.name() == ("ADDED", "a")
            api.put(slice_of("a", pool="cpu"))
            assert await lines.name() == ("DELETED", "a")

    asyncio.run(play())


def test_a_watch_from_a_version_that_is_forgotten_is_told_410() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            version = str(api.put(slice_of("a"))["metadata"]["resourceVersion"])
            async with client.watch(resourceVersion=version) as before:
                api.expire()
                async with client.watch(resourceVersion=version) as lines:
                    word, status = await lines.next()
                    assert (word, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
                    assert await lines.is_over()
                api.put(slice_of("b"))
                assert await before.name() == ("ADDED", "b")  # it missed nothing
            _, page = await client.get()
            async with client.watch(resourceVersion=page["metadata"]["resourceVersion"]) as lines:
                api.put(slice_of("c"))
                assert await lines.name() == ("ADDED", "c")

    asyncio.run(play())


def test_the_pages_of_a_list_are_of_one_moment_until_it_is_forgotten() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            for name in "ace":
                api.put(slice_of(name))
            _, first = await client.get(limit="1")
            api.put(slice_of("b"))
            token = first["metadata"]["continue"]
            assert first["metadata"]["remainingItemCount"] == 2
            _, second = await client.get(limit="2", **{"continue": token})
            assert [each["metadata"]["name"] for each in second["items"]] == ["c", "e"]
            assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
            assert "continue" not in second["metadata"]
            api.expire()
            code, status = await client.get(limit="2", **{"continue": token})
            assert (code, status["reason"]) == (410, "Expired")

    asyncio.run(play())
