"""What our own clients meet at the fake API server: lists, watches, and how they fail."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from fake_kubernetes import FakeApi
from fake_kubernetes.kinds import locate

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
        self.token = ""

    async def get(self, **query: str) -> tuple[int, Object]:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        url = self._api.url + self.PATH
        async with self._session.get(url, params=query, headers=headers) as response:
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
async def scene(**options: Any) -> AsyncIterator[tuple[FakeApi, Client]]:
    async with asyncio.timeout(30), FakeApi(**options) as api, aiohttp.ClientSession() as session:
        yield api, Client(api, session)


def test_a_list_is_of_one_namespace_and_sorted() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            api.put(slice_of("b"))
            api.put(slice_of("a"))
            api.put(slice_of("c", namespace="elsewhere"))
            _, page = await client.get()
            assert [each["metadata"]["name"] for each in page["items"]] == ["a", "b"]

    asyncio.run(play())


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


def test_a_watch_from_nowhere_begins_with_all_that_is_there() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            api.put(slice_of("a"))
            async with client.watch() as lines:
                assert await lines.name() == ("ADDED", "a")

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


def test_only_the_newest_events_are_remembered() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            version = str(api.version)
            for _ in range(1001):
                api.put(slice_of("a"))
            async with client.watch(resourceVersion=version) as lines:
                assert (await lines.next())[1]["code"] == 410
            async with client.watch(resourceVersion=str(int(version) + 1)) as lines:
                assert await lines.name() == ("MODIFIED", "a")

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


def test_watches_end_when_they_are_told_to_and_break_when_the_network_does() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            async with client.watch() as lines:
                api.end_watches()
                assert await lines.is_over()
            await api.watched(0)
            async with client.watch() as lines:
                api.drop_watches()
                with pytest.raises(aiohttp.ClientError):
                    await lines.next()
            await api.watched(0)

    asyncio.run(play())


def test_a_watch_is_over_after_the_time_that_it_asked_for() -> None:
    async def play() -> None:
        async with scene() as (api, client):
            query = {"timeoutSeconds": "1", "allowWatchBookmarks": "true"}
            async with client.watch(**query) as lines:
                word, mark = await lines.next()
                assert (word, mark["kind"]) == ("BOOKMARK", "EndpointSlice")
                assert mark["metadata"]["resourceVersion"] == str(api.version)
                assert await lines.is_over()

    asyncio.run(play())


def test_bookmarks_come_to_those_who_asked_for_them() -> None:
    async def play() -> None:
        async with (
            scene(bookmark_s=0.01) as (api, client),
            client.watch(allowWatchBookmarks="true") as lines,
            client.watch() as others,
        ):
            assert [(await lines.next())[0] for _ in "12"] == ["BOOKMARK", "BOOKMARK"]
            api.put(slice_of("a"))
            assert await others.name() == ("ADDED", "a")

    asyncio.run(play())


def test_a_token_has_to_be_shown_and_to_be_the_newest() -> None:
    async def play() -> None:
        async with scene(token="first") as (api, client):
            assert (await client.get())[0] == 403
            client.token = "first"
            assert (await client.get())[0] == 200
            api.token = "second"
            assert (await client.get())[0] == 401

    asyncio.run(play())


@pytest.mark.parametrize(
    ("code", "reason"),
    [(429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)
def test_it_refuses_everything_until_it_answers_again(code: int, reason: str) -> None:
    async def play() -> None:
        async with scene() as (api, client):
            api.refuse(code)
            status, page = await client.get()
            assert (status, page["kind"], page["reason"]) == (code, "Status", reason)
            api.answer_again()
            assert (await client.get())[0] == 200

    asyncio.run(play())


def test_a_path_names_a_kind_a_namespace_and_maybe_an_object() -> None:
    found = locate("/api/v1/namespaces/servegate/configmaps/colours")
    assert found is not None
    assert (found.kind.name, found.namespace, found.name) == ("ConfigMap", "servegate", "colours")
    found = locate("/api/v1/namespaces/servegate")
    assert found is not None
    assert (found.kind.name, found.namespace, found.name) == ("Namespace", "", "servegate")
    assert locate("/apis/apps/v1/deployments") is not None
    for path in ("/apis/apps/v1/deployments/web", "/apis/apps/v2/deployments", "/api/v1/unknown"):
        assert locate(path) is None
