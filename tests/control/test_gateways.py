"""The gateways of one name: their numbers are one text, whoever comes, goes or is silent."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Collection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import web
from builders import Clock
from certificates import Authority
from ports import free_ports

from serve.app.membership import calls_in_flight
from serve.control import gateway
from serve.control.gateways import RESOLVED, THERE, Gateways, addresses, at_address, of_one_family
from serve.control.live import gateway_metrics
from serve.control.scaling.arrivals import ModelArrivals
from serve.core.errors import DeadlineExceeded, Unavailable
from serve.wire.prometheus import samples

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"
WHERE = ("m", "1", "http")
OF_CALL = 'code="200",model="m",protocol="http",route="split",verb="infer",version="1"'
IN_FLIGHT = {
    "servegate_calls_in_flight": "",
    "servegate_model_calls_in_flight": 'model="m",',
    "servegate_replica_calls_in_flight": 'pool="default",replica="a",',
}
STARTED = "servegate_process_start_time_seconds"


class Pod:
    """One gateway. What it tells is as it stands here at that moment.

    `started` tells its life; without workers nobody tells the calls in flight.
    """

    def __init__(self, address: str, *, calls: float = 0.0, in_flight: float = 0.0) -> None:
        self.address = address
        self.calls, self.in_flight = calls, in_flight
        self.started = 1000.0
        self.has_workers = True
        self.is_up, self.hangs = True, False
        self.says = ""  # instead of its metrics

    def text(self) -> str:
        """What it tells, as the real one does, in the parts that matter here."""
        lines = [
            "# HELP servegate_calls_total Calls",
            "# TYPE servegate_calls_total counter",
            f"servegate_calls_total{{{OF_CALL}}} {self.calls}",
        ]
        for name, labels in IN_FLIGHT.items():
            lines.append(f"# TYPE {name} gauge")
            if self.has_workers:
                lines.append(f'{name}{{{labels}source="worker-0"}} {self.in_flight}')
        lines += [
            f"# TYPE {STARTED} gauge",
            f'{STARTED}{{source="supervisor"}} {self.started}',
            f'{STARTED}{{source="worker-0"}} {self.started + 1}',
            "",
        ]
        return self.says or "\n".join(lines)


class Told:
    """One text, as those read it who need it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.reading = gateway_metrics.read(text)
        self.calls = self.reading.calls[WHERE]
        self.in_flight = self.reading.in_flight
        self.sources = {one.labels["source"] for one in samples(text, (STARTED,))}


class Scene:
    """Pods behind a name, and who reads them; time passes when a test says so."""

    def __init__(self, *pods: Pod) -> None:
        self.clock = Clock()
        self.pods = {pod.address: pod for pod in pods}
        self.names: Collection[str] | Exception = [pod.address for pod in pods]
        self.looks = 0
        self.found = asyncio.Event()  # unless it is set the resolver takes its time
        self.found.set()
        self.asked: list[str] = []
        self.gateways = Gateways("gw", self._ask, resolve=self._resolve, clock=self.clock)

    @property
    def one(self) -> Pod:
        return self.pods[ONE]

    @property
    def two(self) -> Pod:
        return self.pods[TWO]

    async def read(self, after: float = 0.0) -> Told:
        """After some time, in which the name is resolved again."""
        self.clock.now += RESOLVED + after
        return Told(await self.gateways.text(1.0))

    async def counts(self, after: float = 0.0) -> tuple[float, float | None]:
        """The calls, and those in flight."""
        told = await self.read(after)
        return told.calls, told.in_flight

    def comes(self, pod: Pod, *, instead: bool = False) -> None:
        """One more has an address, and answers; the last one's address is taken away `instead`."""
        names = list(self.pods)[:-1] if instead else list(self.pods)
        self.pods[pod.address] = pod
        self.names = [*names, pod.address]

    async def _resolve(self, host: str) -> Collection[str]:
        self.looks += 1
        await self.found.wait()
        if isinstance(self.names, Exception):
            raise self.names
        return list(self.names)

    async def _ask(self, address: str, within: float) -> str:
        self.asked.append(address)
        pod = self.pods.get(address or next(iter(self.pods)))
        await asyncio.sleep(0)  # others ask meanwhile
        if pod is not None and pod.hangs:
            raise DeadlineExceeded
        if pod is None or not pod.is_up:
            raise Unavailable("it does not answer")
        return pod.text()


@pytest.fixture
async def alone() -> AsyncIterator[Scene]:
    """One gateway, which nobody has read yet."""
    scene = Scene(Pod(ONE, calls=300, in_flight=1))
    yield scene
    scene.gateways.close()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    """Two gateways, which were read once."""
    scene = Scene(Pod(ONE, calls=3, in_flight=1), Pod(TWO, calls=4, in_flight=2))
    told = await scene.read()
    assert (told.calls, told.in_flight, told.reading.busy) == (7, 3, {"a": 3})
    yield scene
    scene.gateways.close()


async def test_while_one_is_silent_its_counts_stay_and_in_flight_is_unknown(scene: Scene) -> None:
    first, second = (
        {f"{one}@{where}" for one in ("supervisor", "worker-0")} for where in (ONE, TWO)
    )
    assert (await scene.read()).sources == first | second
    scene.two.hangs = True
    scene.one.calls += 1
    told = await scene.read()
    assert (told.calls, told.in_flight, told.reading.busy) == (8, None, {})
    assert told.sources == first
    scene.two.hangs = False
    scene.two.calls += 10
    assert await scene.counts() == (18, 3)
    for calls in (21, 24):  # one that is rarely asked is as much there as any
        scene.two.calls += 3
        assert await scene.counts(after=10 * THERE) == (calls, 3)


async def test_one_that_stays_silent_is_gone_and_makes_nothing_leap_when_it_comes_back(
    scene: Scene,
) -> None:
    scene.two.hangs = True
    await scene.read()
    assert await scene.counts(after=THERE) == (7, 1)  # others say what is in flight
    scene.two.hangs = False
    scene.two.calls += 1000
    assert (await scene.read()).calls == 7
    scene.two.calls += 5
    assert (await scene.read()).calls == 12
    scene.two.started, scene.two.calls = 2000.0, 6  # one that restarts counts on
    assert (await scene.read()).calls == 18


async def test_one_that_has_left_is_forgotten_and_what_it_counted_is_not(scene: Scene) -> None:
    scene.two.is_up = False
    scene.comes(Pod(THREE), instead=True)
    assert await scene.counts() == (7, None)  # it may be there all the same
    assert await scene.counts(after=THERE) == (7, 1)
    assert repr(scene.gateways) == f"<Gateways gw ['{ONE}', '{THREE}']>"
    scene.asked.clear()
    await scene.read()
    assert sorted(scene.asked) == [ONE, THREE]


async def test_one_that_comes_counts_from_when_it_is_seen(scene: Scene) -> None:
    three = Pod(THREE, calls=500, in_flight=2)
    scene.comes(three)
    assert await scene.counts() == (7, 5)
    three.calls += 1
    assert (await scene.read()).calls == 8


@pytest.mark.parametrize("instead", [False, True])
async def test_what_the_only_one_says_is_passed_on_until_another_comes(
    alone: Scene, instead: bool
) -> None:
    assert (await alone.read()).text == alone.one.text()
    assert alone.asked == [""]  # by its name, as ever
    alone.comes(Pod(TWO, calls=50), instead=instead)
    alone.one.calls += 1
    alone.one.is_up = not instead
    assert (await alone.read()).calls == (300 if instead else 301)  # no sum falls


async def test_without_a_resolver_those_that_were_known_stay(scene: Scene, alone: Scene) -> None:
    scene.names = OSError("no such name")
    assert (await scene.read()).calls == 7
    scene.names = []
    assert (await scene.read()).calls == 7
    alone.names = OSError("no such name")
    with pytest.raises(Unavailable, match=r"no gateway at gw: .*no such name"):
        await alone.read()


async def test_the_name_is_resolved_every_few_seconds_and_nobody_waits_for_a_slow_resolver(
    scene: Scene,
) -> None:
    for _ in range(5):
        await scene.gateways.text(1.0)
    assert scene.looks == 1
    scene.found.clear()
    scene.names = [ONE, TWO, THREE]
    for _ in range(3):
        assert (await scene.read()).calls == 7
    assert scene.looks == 2
    scene.found.set()
    await scene.read()
    assert THREE in repr(scene.gateways)


async def test_one_that_tells_less_or_something_else_silences_nobody(scene: Scene) -> None:
    scene.two.has_workers = False
    assert await scene.counts() == (7, None)
    scene.two.says = "<html>a page</html>"
    assert await scene.counts() == (7, None)
    scene.one.says = "502 Bad Gateway"
    with pytest.raises(Unavailable, match=f"the addresses are {ONE}, {TWO}"):
        await scene.read()


async def test_those_who_ask_at_once_share_a_reading_that_began_later(scene: Scene) -> None:
    scene.asked.clear()
    texts = await asyncio.gather(*(scene.gateways.text(1.0) for _ in range(10)))
    assert len(set(texts)) == 1
    assert sorted(scene.asked) == [ONE, ONE, TWO, TWO]


async def test_arrivals_see_no_burst_when_one_comes_goes_or_is_silent(scene: Scene) -> None:
    arrivals = ModelArrivals()

    async def rate() -> float:
        scene.one.calls += 50
        scene.two.calls += 50
        arrivals.tell((await scene.read()).text, scene.clock.now)
        return arrivals.of("m").recent

    await rate()
    assert await rate() == 20
    scene.two.hangs = True
    assert (await rate(), arrivals.fault) == (10, "")  # what is known of it comes later
    scene.two.hangs = False
    assert (await rate(), arrivals.fault) == (30, "")
    scene.comes(Pod(THREE, calls=9000))
    assert (await rate(), arrivals.fault) == (20, "")


# --- as the control plane asks them: by address, under the name of all ----------------------------


@contextlib.asynccontextmanager
async def listening(
    port: int, *pods: Pod, tls: ssl.SSLContext | None = None
) -> AsyncIterator[list[str]]:
    """The metrics port of each pod is a real server; gives the hosts that were asked for."""
    hosts: list[str] = []

    def answering(pod: Pod) -> web.Application:
        async def answer(request: web.Request) -> web.Response:
            hosts.append(request.headers["host"])
            if pod.hangs:
                await asyncio.Event().wait()
            return web.Response(text=pod.text())

        application = web.Application()
        application.router.add_get("/metrics", answer)
        return application

    async with contextlib.AsyncExitStack() as stack:
        for pod in pods:
            runner = web.AppRunner(answering(pod), shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, pod.address, port, ssl_context=tls).start()
        yield hosts


@contextlib.asynccontextmanager
async def asking(
    url: str, *found: str, trust: ssl.SSLContext | None = None
) -> AsyncIterator[gateway.GatewayClient]:
    """Who asks at a URL, whose name stands for these addresses."""

    async def resolve(host: str) -> Collection[str]:
        assert host == urlsplit(url).hostname
        return found

    place = gateway.GatewayAddress("http://127.0.0.1:1", "127.0.0.1:1", url)
    one = gateway.GatewayClient(place, key=lambda: "", trust=trust, resolve=resolve)
    try:
        yield one
    finally:
        await one.close()


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


async def test_each_address_is_asked_under_the_name_of_all(port: int) -> None:
    pods = Pod(ONE, calls=3), Pod(TWO, calls=4)
    async with listening(port, *pods) as hosts:
        async with asking(f"http://gw:{port}/metrics", ONE, TWO) as asks:
            assert Told(await asks.metrics()).calls == 7
        assert hosts == [f"gw:{port}"] * 2
        async with asking(f"http://{ONE}:{port}/metrics", "nobody") as asks:
            assert await asks.metrics() == pods[0].text()  # an address is no name of others


async def test_the_certificate_is_that_of_the_name(port: int, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*authority.issue("gateways", "gw.test"))
    trust = ssl.create_default_context(cafile=str(authority.path))
    url = f"https://%s.test:{port}/metrics"
    async with listening(port, Pod(TWO, calls=3), Pod(THREE, calls=4), tls=tls):
        async with asking(url % "gw", TWO, THREE, trust=trust) as asks:
            assert Told(await asks.metrics()).calls == 7
        async with asking(url % "other", TWO, THREE, trust=trust) as asks:
            with pytest.raises(Unavailable):
                await asks.metrics()


async def test_a_replica_is_idle_only_if_every_gateway_says_so(port: int) -> None:
    one, two = Pod(ONE), Pod(TWO, in_flight=2)
    async with listening(port, one, two), asking(f"http://gw:{port}/metrics", ONE, TWO) as asks:
        assert await calls_in_flight(asks) == {"a": 2}
        two.hangs = True
        assert await calls_in_flight(asks) is None
        two.hangs = False
        two.in_flight = 0
        assert await calls_in_flight(asks) == {"a": 0}


def test_a_url_leads_to_an_address() -> None:
    for url, address, there in (
        ("http://gw:8002/metrics", "10.0.0.7", "http://10.0.0.7:8002/metrics"),
        ("https://gw/metrics?a=b", "10.0.0.7", "https://10.0.0.7/metrics?a=b"),
        ("http://gw:8002/metrics", "fd00::7", "http://[fd00::7]:8002/metrics"),
        ("http://gw:8002/metrics", "", "http://gw:8002/metrics"),
    ):
        assert at_address(urlsplit(url), address) == there


def test_a_gateway_with_an_address_of_each_family_counts_once() -> None:
    rows: list[tuple[list[str], list[str], set[str]]] = [
        ([ONE, TWO, ONE], [], {ONE, TWO}),
        (["fd00::1", "fd00::2", ONE], [], {ONE}),
        (["fd00::1"], [], {"fd00::1"}),
        (["fd00::1", ONE], ["fd00::2"], {"fd00::1"}),
        (["fd00::1"], [ONE], set()),
        ([], [ONE], set()),
        ([], [], set()),
    ]
    for found, before, taken in rows:
        assert of_one_family(found, before) == taken, (found, before)


def test_a_name_is_resolved_as_the_machine_does_it() -> None:
    assert set(asyncio.run(addresses("localhost"))) & {ONE, "::1"}
