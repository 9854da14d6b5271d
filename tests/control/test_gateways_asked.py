"""The gateways of one name, as the control plane asks them: by address, under the name of all."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from certificates import Authority
from control.gateway_pods import Pod, Told, running
from ports import free_ports

from serve.app.membership import calls_in_flight
from serve.control import gateway
from serve.control.gateways import addresses, at_address, of_one_family
from serve.core.errors import Unavailable

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


@contextlib.asynccontextmanager
async def asking(
    url: str, *found: str, trust: ssl.SSLContext | None = None
) -> AsyncIterator[gateway.Gateway]:
    """Who asks at a URL, whose name stands for these addresses."""

    async def resolve(host: str) -> Collection[str]:
        assert host == urlsplit(url).hostname
        return found

    place = gateway.Place("http://127.0.0.1:1", "127.0.0.1:1", url)
    one = gateway.Gateway(place, key=lambda: "", trust=trust, resolve=resolve)
    try:
        yield one
    finally:
        await one.close()


def stage(story: Callable[[int], Awaitable[None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(story(free_ports(1)[0]), 30)

    asyncio.run(run())


def test_each_address_is_asked_under_the_name_of_all() -> None:
    async def story(port: int) -> None:
        one, two = Pod(ONE, calls=3), Pod(TWO, calls=4)
        async with running(port, one, two), asking(f"http://gw:{port}/metrics", ONE, TWO) as asks:
            assert Told(await asks.metrics()).calls == 7
        assert one.hosts == two.hosts == [f"gw:{port}"]

    stage(story)


def test_the_certificate_is_that_of_the_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("gateways", "gw.test"))
    trust = ssl.create_default_context(cafile=str(authority.path))

    async def story(port: int) -> None:
        pods = Pod(TWO, calls=3), Pod(THREE, calls=4)
        async with running(port, *pods, tls=tls):
            async with asking(f"https://gw.test:{port}/metrics", TWO, THREE, trust=trust) as asks:
                assert Told(await asks.metrics()).calls == 7
            async with asking(
                f"https://other.test:{port}/metrics", TWO, THREE, trust=trust
            ) as asks:
                with pytest.raises(Unavailable):
                    await asks.metrics()

    stage(story)


def test_a_replica_is_idle_only_if_every_gateway_says_so() -> None:
    async def story(port: int) -> None:
        one, two = Pod(ONE), Pod(TWO, in_flight=2)
        async with running(port, one, two), asking(f"http://gw:{port}/metrics", ONE, TWO) as asks:
            assert await calls_in_flight(asks) == {"a": 2}
            two.holds.clear()
            assert await calls_in_flight(asks) is None
            two.holds.set()
            two.in_flight = 0
            assert await calls_in_flight(asks) == {"a": 0}

    stage(story)


def test_an_address_is_asked_without_looking_for_others() -> None:
    async def story(port: int) -> None:
        pod = Pod(ONE, calls=3)
        async with running(port, pod), asking(f"http://{ONE}:{port}/metrics", "nobody") as asks:
            assert await asks.metrics() == pod.text()

    stage(story)


@pytest.mark.parametrize(
    "url, address, there",
    [
        ("http://gw:8002/metrics", "10.0.0.7", "http://10.0.0.7:8002/metrics"),
        ("https://gw/metrics?a=b", "10.0.0.7", "https://10.0.0.7/metrics?a=b"),
        ("http://gw:8002/metrics", "fd00::7", "http://[fd00::7]:8002/metrics"),
        ("http://gw:8002/metrics", "", "http://gw:8002/metrics"),
    ],
)
def test_a_url_leads_to_an_address(url: str, address: str, there: str) -> None:
    assert at_address(urlsplit(url), address) == there


@pytest.mark.parametrize(
    "found, before, taken",
    [
        ([ONE, TWO, ONE], [], {ONE, TWO}),
        (["fd00::1", "fd00::2", ONE], [], {ONE}),
        (["fd00::1"], [], {"fd00::1"}),
        (["fd00::1", ONE], ["fd00::2"], {"fd00::1"}),
        (["fd00::1"], [ONE], set()),
        ([], [ONE], set()),
        ([], [], set()),
    ],
)
def test_a_gateway_with_an_address_of_each_family_counts_once(
    found: list[str], before: list[str], taken: set[str]
) -> None:
    assert of_one_family(found, before) == taken


def test_a_name_is_resolved_as_the_machine_does_it() -> None:
    assert set(asyncio.run(addresses("localhost"))) & {ONE, "::1"}
