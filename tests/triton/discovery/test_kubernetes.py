"""EndpointSlices, listed and watched over real sockets, of a fake API server that can fail."""

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from builders import Clock, until
from certificates import Authority
from endpoint_slices import NAMESPACE, endpoint_slice, pod
from fake_kubernetes import FakeApi

from serve.core.discovery import ByKubernetes
from serve.core.errors import CannotStart, ServegateError
from serve.triton.discovery.endpoints import Listing
from serve.triton.discovery.kubernetes import Cluster, EndpointSlices, LineBuffer, Slices, pause

PATIENCE = 20.0  # seconds; a bound


class Heard:
    """What was told: lists of names, and failures; `pauses` are those between attempts.

    They end at once.
    """

    def __init__(self) -> None:
        self.lists: list[list[str]] = []
        self.problems: list[str] = []
        self.failures: list[str] = []
        self.wells = 0
        self.pauses: list[float] = []
        self.source: EndpointSlices | None = None

    def told(self, listing: Listing) -> None:
        self.lists.append([one.replica.name for one in listing.endpoints])
        self.problems += listing.problems

    def well(self) -> None:
        self.wells += 1

    def failed(self, error: ServegateError) -> None:
        self.failures.append(str(error))

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def hears(self, *names: str) -> None:
        """Wait until these are the last that were told."""
        await until(lambda: self.lists[-1:] == [list(names)], within=PATIENCE)

    async def fails(self, word: str) -> None:
        """Wait until the last failure says this."""
        await until(lambda: word in "".join(self.failures[-1:]), within=PATIENCE)


def put(api: FakeApi, *names: str, slice_: str = "s") -> None:
    """The Service of pool default has these pods."""
    api.put(endpoint_slice(*[pod(name) for name in names], name=slice_))


@contextlib.asynccontextmanager
async def following(
    cluster: Cluster, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[Heard]:
    heard = Heard()
    heard.source = EndpointSlices(cluster, sleep=heard.pause, draw=lambda: 1.0, clock=clock)
    running = asyncio.create_task(heard.source.run(heard))
    try:
        yield heard
    finally:
        assert not running.done()
        running.cancel()
        await asyncio.wait([running])


def at(api: FakeApi) -> Cluster:
    return Cluster(api.url, NAMESPACE)


Work = Callable[[FakeApi], Awaitable[None]]


def run_with_fake(work: Work, **options: Any) -> None:
    async def run() -> None:
        async with asyncio.timeout(3 * PATIENCE), FakeApi(**options) as api:
            await work(api)

    asyncio.run(run())


def with_fake(**options: Any) -> Callable[[Work], Callable[[], None]]:
    """A test that a fake API server is started for."""
    return lambda work: lambda: run_with_fake(work, **options)


def lists(api: FakeApi) -> list[dict[str, str]]:
    return [dict(one.query) for one in api.requests if not one.is_watch]


def watches(api: FakeApi) -> list[dict[str, str]]:
    return [dict(one.query) for one in api.requests if one.is_watch]


@with_fake()
async def test_what_is_there_is_listed_and_what_changes_is_told(api: FakeApi) -> None:
    put(api, "a")
    listed_at = str(api.version)
    async with following(at(api)) as heard:
        await heard.hears("a")
        await api.watched()
        put(api, "a", "b")
        await heard.hears("a", "b")
        put(api, "c", slice_="t")
        await heard.hears("a", "b", "c")
        api.delete("EndpointSlice", NAMESPACE, "s")
        await heard.hears("c")
    assert (len(lists(api)), heard.failures) == (1, [])
    (asked,) = watches(api)
    assert asked["resourceVersion"] == listed_at
    assert asked["allowWatchBookmarks"] == "true"
    assert 10 < int(asked["timeoutSeconds"]) <= 60


@with_fake()
async def test_only_slices_with_a_pools_label_in_the_namespace_count(api: FakeApi) -> None:
    other = endpoint_slice(pod("other"), name="other")
    del other["metadata"]["labels"]["servegate.dev/pool"]
    api.put(other)
    api.put(endpoint_slice(pod("away")) | {"metadata": other["metadata"] | {"namespace": "x"}})
    async with following(at(api)) as heard:
        await heard.hears()
        await api.watched()
        put(api, "a")
        await heard.hears("a")


@with_fake()
async def test_a_long_list_comes_in_pages(api: FakeApi) -> None:
    names = sorted(f"p{number}" for number in range(250))
    for name in names:
        put(api, name, slice_=f"s-{name}")
    async with following(at(api)) as heard:
        await heard.hears(*names)
    first, *others = lists(api)
    assert first == {"labelSelector": "servegate.dev/pool", "limit": "100"}
    assert len(others) == 2 and all(one["continue"] for one in others)


@pytest.mark.parametrize("way", ["end_watches", "drop_watches"])
def test_a_watch_that_ends_goes_on_where_it_was_and_misses_nothing(way: str) -> None:
    async def work(api: FakeApi) -> None:
        put(api, "a")
        async with following(at(api)) as heard:
            await api.watched()
            getattr(api, way)()
            put(api, "a", "b")  # while nobody watches
            put(api, "b")
            await heard.hears("b")
        assert heard.lists == [["a"], ["a", "b"], ["b"]]
        assert (len(lists(api)), heard.failures) == (1, [])
        assert heard.wells >= 2

    run_with_fake(work)


@with_fake()
async def test_who_has_a_bookmark_goes_on_after_the_history_before_it_is_forgotten(
    api: FakeApi,
) -> None:
    put(api, "a")
    async with following(at(api)) as heard:
        await api.watched()
        api.expire()
        api.bookmark()
        now = f"version={api.version}"
        await until(lambda: now in repr(heard.source), within=PATIENCE)
        api.drop_watches()
        put(api, "b")
        await heard.hears("b")
    assert len(lists(api)) == 1


@with_fake()
async def test_when_the_history_is_forgotten_everything_is_listed_anew(api: FakeApi) -> None:
    put(api, "a", "b")
    async with following(at(api)) as heard:
        await api.watched()
        api.drop_watches()
        await api.watched(0)
        put(api, "b")
        api.expire()
        await heard.hears("b")
        await api.watched()
    assert heard.failures == []
    assert len(lists(api)) == 2


@with_fake()
async def test_a_410_as_an_answer_is_one_as_well_and_what_was_told_stays(api: FakeApi) -> None:
    put(api, "a")
    async with following(at(api)) as heard:
        await api.watched()
        api.refuse(410)
        api.drop_watches()
        await api.asked(len(api.requests) + 4)
        assert heard.lists == [["a"]]
        api.answer_again()
        await until(lambda: heard.lists == [["a"], ["a"]], within=PATIENCE)
    assert heard.failures == []


@with_fake()
async def test_an_api_server_that_fails_is_told_and_its_last_list_stays_until_it_answers_again(
    api: FakeApi,
) -> None:
    put(api, "a")
    async with following(at(api)) as heard:
        await api.watched()
        api.refuse(500)
        api.drop_watches()
        await heard.fails("the API server responded with 500")
        put(api, "b")
        assert heard.lists == [["a"]]
        api.answer_again()
        await heard.hears("b")


def test_an_api_server_that_goes_away_and_comes_back_is_followed_again() -> None:
    async def run() -> None:
        api = FakeApi()
        async with asyncio.timeout(3 * PATIENCE):
            async with api:
                put(api, "a")
                running = contextlib.AsyncExitStack()
                heard = await running.enter_async_context(following(at(api)))
                await api.watched()
            await heard.fails("does not answer")
            put(api, "b")
            async with api, running:
                await heard.hears("b")

    asyncio.run(run())


@with_fake()
async def test_pauses_between_attempts_grow_up_to_ten_seconds(api: FakeApi) -> None:
    api.refuse(503)
    async with following(at(api)) as heard:
        await until(lambda: len(heard.pauses) > 8, within=PATIENCE)
    assert heard.pauses[:8] == [0.5, 1, 2, 4, 8, 10, 10, 10]


@with_fake()
async def test_after_a_watch_that_lasted_pauses_are_short_again(api: FakeApi) -> None:
    clock = Clock()
    put(api, "a")
    api.refuse(503)
    async with following(at(api), clock) as heard:
        await until(lambda: len(heard.pauses) > 4, within=PATIENCE)
        api.answer_again()
        await api.watched()
        clock.now += 60
        count = len(heard.pauses)
        api.end_watches()
        await until(lambda: len(heard.pauses) > count, within=PATIENCE)
        assert heard.pauses[count] == 0.25


def test_a_token_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")

    async def work(api: FakeApi) -> None:
        put(api, "a")
        async with following(Cluster(api.url, NAMESPACE, token)) as heard:
            await api.watched()
            assert {one.token for one in api.requests} == {"old"}
            api.token = "new"
            api.drop_watches()
            await heard.fails("rejects this pod's token")
            token.write_text("new\n")
            put(api, "b")
            await heard.hears("b")

    run_with_fake(work, token="old")


def test_a_role_that_is_missing_and_a_token_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    async def work(api: FakeApi) -> None:
        async with following(at(api)) as heard:
            await heard.fails("is not allowed to read the EndpointSlices of namespace servegate")
            await heard.fails("a Role with get, list and watch of endpointslices")
        async with following(Cluster(api.url, NAMESPACE, tmp_path / "none")) as heard:
            await heard.fails("No such file")

    run_with_fake(work, token="needed")


@with_fake()
async def test_an_address_that_knows_no_endpoint_slices_is_told(api: FakeApi) -> None:
    async with following(Cluster(f"{api.url}/elsewhere", NAMESPACE)) as heard:
        await heard.fails("no EndpointSlices at this address")


def test_only_the_clusters_own_authority_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ours, other = Authority(tmp_path), Authority(tmp_path / "other")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*ours.issue("api"))

    async def work(api: FakeApi) -> None:
        put(api, "a")
        async with following(Cluster(api.url, NAMESPACE, ca=ours.path)) as heard:
            await heard.hears("a")
        async with following(Cluster(api.url, NAMESPACE, ca=other.path)) as heard:
            await heard.fails("certificate")
        async with following(Cluster(api.url, NAMESPACE)) as heard:
            await heard.fails("certificate")

    run_with_fake(work, tls=tls)


LIST = '{"metadata":{"resourceVersion":"7"},"items":[]}'


ODD_LISTS = (
    *("this is no JSON", "[]", '{"items":[]}'),
    '{"metadata":{"resourceVersion":"7"},"items":[{}]}',
)
ODD_EVENTS = (
    *("this is no JSON\n", "7\n", '{"type":"ADDED"}\n', '{"type":"ADDED","object":{}}\n'),
    "x" * 9_000_000,
)


@pytest.mark.parametrize(
    ("listed", "watched"),
    [*((one, "") for one in ODD_LISTS), *((LIST, one) for one in ODD_EVENTS)],
    ids=range(9),
)
def test_what_does_not_answer_as_kubernetes_does_is_told_and_asked_again(
    listed: str, watched: str
) -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.query.get("watch", ""))
        text = watched if request.query.get("watch") else listed
        return web.Response(text=text, content_type="application/json")

    async def run() -> None:
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        async with (
            asyncio.timeout(PATIENCE),
            following(Cluster(f"http://127.0.0.1:{port}", NAMESPACE)) as heard,
        ):
            await heard.fails("does not answer like a Kubernetes API server")
            count = len(asked)
            await until(lambda: len(asked) > count, within=PATIENCE)
        assert asked[count] == ""  # a list
        await runner.cleanup()

    asyncio.run(run())


# --- their parts ----------------------------------------------------------------------------------


def test_of_two_slices_with_one_pod_the_one_that_changed_last_is_right() -> None:
    slices = Slices()
    newer = endpoint_slice(pod("x", ready=False), name="s-1", version=12)
    older = endpoint_slice(pod("x", ready=True), name="s-2", version=9)
    slices.begin([newer, older], "12")
    assert [one.is_ready for one in slices.listing.endpoints] == [False]
    slices.apply("MODIFIED", older | {"metadata": older["metadata"] | {"resourceVersion": "13"}})
    assert [one.is_ready for one in slices.listing.endpoints] == [True]


def test_lines_are_the_same_in_whatever_pieces_they_come() -> None:
    for size in (1, 2, 3, 5, 100):
        text = b'{"a":1}\n\n{"b":2}\r\n{"c":3}\n{"half'
        lines = LineBuffer(100)
        found = [
            line for at in range(0, len(text), size) for line in lines.feed(text[at : at + size])
        ]
        assert found == [b'{"a":1}', b'{"b":2}\r', b'{"c":3}'], size


def test_a_line_that_is_too_long_is_refused_before_it_ends() -> None:
    assert LineBuffer(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]
    for pieces in ([b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11 + b"\n"]):
        lines = LineBuffer(10)
        with pytest.raises(ValueError, match="more than 10 bytes"):
            for piece in pieces:
                lines.feed(piece)


def test_pauses_double_up_to_ten_seconds_and_have_chance_in_them() -> None:
    assert [pause(tries, 1.0) for tries in (0, 1, 2, 5, 6, 1000)] == [0.25, 0.5, 1, 8, 10, 10]
    assert pause(3, 0.0) == pause(3, 1.0) / 2


# --- which cluster --------------------------------------------------------------------------------


def account(folder: Path) -> Path:
    """A service account's files."""
    (folder / "namespace").write_text("models\n")
    (folder / "token").write_text("secret")
    return folder


INSIDE = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def test_the_cluster_is_that_of_the_pod_or_the_one_that_is_named(tmp_path: Path) -> None:
    here = Cluster.of(ByKubernetes(), INSIDE, account(tmp_path))
    assert (here.url, here.namespace) == ("https://10.96.0.1:443", "models")
    assert (here.token, here.ca) == (tmp_path / "token", tmp_path / "ca.crt")
    assert Cluster.of(ByKubernetes("other"), INSIDE, account(tmp_path)).namespace == "other"
    six = INSIDE | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    assert Cluster.of(ByKubernetes(), six, account(tmp_path)).url == "https://[fd00::1]:443"
    # one that is named is asked as nobody in particular
    named = Cluster.of(ByKubernetes("models", "http://127.0.0.1:8001/"), INSIDE, account(tmp_path))
    assert named == Cluster("http://127.0.0.1:8001", "models")


def test_where_there_is_no_cluster_that_is_said_with_the_way_to_one(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="needs to run in a pod") as outside:
        Cluster.of(ByKubernetes(), {}, account(tmp_path))
    assert "kubectl proxy" in outside.value.try_this
    with pytest.raises(CannotStart, match="no service account") as inside:
        Cluster.of(ByKubernetes(), INSIDE, tmp_path / "nowhere")
    assert "automountServiceAccountToken: true" in inside.value.try_this
