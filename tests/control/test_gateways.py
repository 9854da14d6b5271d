"""The gateways of one name: their numbers are one text, whoever comes, goes or is silent."""

import asyncio
from collections.abc import Callable, Collection, Coroutine
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from builders import Clock
from control.gateway_pods import Pod, Told, running
from ports import free_ports

from serve.control.gateways import RESOLVED, THERE, Gateways, at_address
from serve.control.scaling.arrivals import Arrivals
from serve.core.errors import DeadlineExceeded, Unavailable

ONE, TWO, THREE = "127.0.0.1", "127.0.0.2", "127.0.0.3"


class Scene:
    """Pods of one port behind a name, and who reads them; time passes when a test says so."""

    def __init__(self, session: aiohttp.ClientSession, port: int, pods: tuple[Pod, ...]) -> None:
        self.clock = Clock()
        self.session, self.port = session, port
        self.pods = {pod.address: pod for pod in pods}
        self.names: Collection[str] | Exception = [pod.address for pod in pods]
        self.looks = 0
        self.found = asyncio.Event()  # unless it is set the resolver takes its time
        self.found.set()
        self.asked: list[str] = []
        self.gateways = Gateways("gw", self._ask, resolve=self._resolve, clock=self.clock)

    async def read(self) -> Told:
        """After a time in which the name is resolved again."""
        self.clock.now += RESOLVED
        return Told(await self.gateways.text(1.0))

    async def comes(self, pod: Pod) -> None:
        """One more has an address, and answers."""
        await pod.start(self.port)
        self.pods[pod.address] = pod
        self.names = self.pods.keys()

    async def _resolve(self, host: str) -> Collection[str]:
        self.looks += 1
        await self.found.wait()
        if isinstance(self.names, Exception):
            raise self.names
        return list(self.names)

    async def _ask(self, address: str, within: float) -> str:
        """Over a real socket; one that hangs is not waited for."""
        self.asked.append(address)
        there = address or next(iter(self.pods))
        if there in self.pods and not self.pods[there].holds.is_set():
            raise DeadlineExceeded
        url = at_address(urlsplit(f"http://gw:{self.port}/metrics"), there)
        try:
            async with self.session.get(url) as answer:
                return await answer.text()
        except aiohttp.ClientError as error:
            raise Unavailable("it does not answer") from error


def play(story: Callable[[Scene], Coroutine[Any, Any, None]], *pods: Pod) -> None:
    async def run() -> None:
        (port,) = free_ports(1)
        async with running(port, *pods), aiohttp.ClientSession() as session:
            scene = Scene(session, port, pods)
            try:
                await story(scene)
            finally:
                scene.gateways.close()
                for pod in scene.pods.values():
                    await pod.stop()

    asyncio.run(asyncio.wait_for(run(), 30))


def test_counters_are_added_up_and_gauges_are_kept_apart_by_address() -> None:
    async def story(scene: Scene) -> None:
        told = await scene.read()
        assert (told.calls, told.in_flight, told.reading.busy) == (7, 3, {"a": 3})
        assert told.sources == {
            f"{process}@{address}"
            for process in ("supervisor", "worker-0")
            for address in (ONE, TWO)
        }

    play(story, Pod(ONE, calls=3, in_flight=1), Pod(TWO, calls=4, in_flight=2))


def test_one_that_is_silent_once_keeps_its_counts_and_nobody_says_what_is_in_flight() -> None:
    one, two = Pod(ONE, calls=3, in_flight=1), Pod(TWO, calls=4, in_flight=2)

    async def story(scene: Scene) -> None:
        await scene.read()
        two.holds.clear()
        one.calls += 1
        told = await scene.read()
        assert (told.calls, told.in_flight, told.reading.busy) == (8, None, {})
        assert told.sources == {f"supervisor@{ONE}", f"worker-0@{ONE}"}
        two.holds.set()
        two.calls += 10
        told = await scene.read()
        assert (told.calls, told.in_flight) == (18, 3)

    play(story, one, two)


def test_one_that_is_rarely_asked_is_as_much_there_as_any() -> None:
    two = Pod(TWO, calls=4)

    async def story(scene: Scene) -> None:
        await scene.read()
        for calls in (7, 10):
            scene.clock.now += 10 * THERE
            two.calls += 3
            assert (await scene.read()).calls == calls + 3

    play(story, Pod(ONE, calls=3), two)


def test_one_that_stays_silent_is_gone_and_the_others_say_what_is_in_flight() -> None:
    one, two = Pod(ONE, calls=3, in_flight=1), Pod(TWO, calls=4, in_flight=2)

    async def story(scene: Scene) -> None:
        await scene.read()
        await two.stop()
        await scene.read()
        scene.clock.now += THERE
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, 1)

    play(story, one, two)


def test_one_that_comes_back_after_long_makes_nothing_leap() -> None:
    one, two = Pod(ONE, calls=3), Pod(TWO, calls=4)

    async def story(scene: Scene) -> None:
        await scene.read()
        two.holds.clear()
        await scene.read()
        scene.clock.now += THERE
        await scene.read()
        two.holds.set()
        two.calls += 1000
        assert (await scene.read()).calls == 7
        two.calls += 5
        assert (await scene.read()).calls == 12

    play(story, one, two)


def test_one_that_restarts_counts_on() -> None:
    two = Pod(TWO, calls=4)

    async def story(scene: Scene) -> None:
        await scene.read()
        two.started, two.calls = 2000.0, 6
        assert (await scene.read()).calls == 13

    play(story, Pod(ONE, calls=3), two)


def test_one_that_has_left_is_forgotten_and_what_it_counted_is_not() -> None:
    two = Pod(TWO, calls=4, in_flight=2)

    async def story(scene: Scene) -> None:
        await scene.read()
        await two.stop()
        scene.names = [ONE, THREE]
        await scene.comes(Pod(THREE))
        scene.names = [ONE, THREE]
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, None)  # it may be there all the same
        scene.clock.now += THERE
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, 0)
        assert repr(scene.gateways) == f"<Gateways gw ['{ONE}', '{THREE}']>"
        scene.asked.clear()
        await scene.read()
        assert sorted(scene.asked) == [ONE, THREE]

    play(story, Pod(ONE, calls=3), two)


def test_one_that_comes_counts_from_when_it_is_seen() -> None:
    async def story(scene: Scene) -> None:
        await scene.read()
        three = Pod(THREE, calls=500, in_flight=2)
        await scene.comes(three)
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, 2)
        three.calls += 1
        assert (await scene.read()).calls == 8

    play(story, Pod(ONE, calls=3), Pod(TWO, calls=4))


def test_what_the_only_one_says_is_passed_on_as_it_is() -> None:
    one = Pod(ONE, calls=3, in_flight=1)

    async def story(scene: Scene) -> None:
        assert (await scene.read()).text == one.text()
        assert scene.asked == [""]  # by its name, as ever

    play(story, one)


def test_a_second_one_makes_no_sum_fall() -> None:
    one = Pod(ONE, calls=300)

    async def story(scene: Scene) -> None:
        assert (await scene.read()).calls == 300
        await scene.comes(Pod(TWO, calls=50))
        one.calls += 1
        assert (await scene.read()).calls == 301

    play(story, one)


def test_one_in_place_of_the_only_one_makes_no_sum_fall() -> None:
    one = Pod(ONE, calls=300)

    async def story(scene: Scene) -> None:
        await scene.read()
        await one.stop()
        await scene.comes(Pod(TWO))
        scene.names = [TWO]
        assert (await scene.read()).calls == 300

    play(story, one)


def test_without_a_resolver_those_that_were_known_stay() -> None:
    async def story(scene: Scene) -> None:
        await scene.read()
        scene.names = OSError("no such name")
        assert (await scene.read()).calls == 7
        scene.names = []
        assert (await scene.read()).calls == 7

    play(story, Pod(ONE, calls=3), Pod(TWO, calls=4))


def test_a_name_that_stands_for_nothing_is_told() -> None:
    async def story(scene: Scene) -> None:
        scene.names = OSError("no such name")
        with pytest.raises(Unavailable, match=r"no gateway at gw: .*no such name"):
            await scene.read()

    play(story, Pod(ONE))


def test_the_name_is_resolved_every_few_seconds_only() -> None:
    async def story(scene: Scene) -> None:
        for _ in range(5):
            await scene.gateways.text(1.0)
        assert scene.looks == 1
        await scene.read()
        assert scene.looks == 2

    play(story, Pod(ONE), Pod(TWO))


def test_a_resolver_that_is_slow_is_asked_once_and_waited_for_by_nobody() -> None:
    async def story(scene: Scene) -> None:
        await scene.read()
        scene.found.clear()
        scene.names = [ONE, TWO, THREE]
        for _ in range(3):
            assert (await scene.read()).calls == 7
        assert scene.looks == 2
        scene.found.set()
        await scene.read()
        assert THREE in repr(scene.gateways)

    play(story, Pod(ONE, calls=3), Pod(TWO, calls=4))


def test_one_whose_workers_do_not_tell_leaves_it_unknown_what_is_in_flight() -> None:
    two = Pod(TWO, calls=4, in_flight=2)

    async def story(scene: Scene) -> None:
        await scene.read()
        two.has_workers = False
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, None)

    play(story, Pod(ONE, calls=3, in_flight=1), two)


def test_one_that_says_something_else_does_not_silence_the_others() -> None:
    one, two = Pod(ONE, calls=3, in_flight=1), Pod(TWO, calls=4)

    async def story(scene: Scene) -> None:
        await scene.read()
        two.says = "<html>a page</html>"
        told = await scene.read()
        assert (told.calls, told.in_flight) == (7, None)
        one.says = "502 Bad Gateway"
        with pytest.raises(Unavailable, match=f"asked were {ONE}, {TWO}"):
            await scene.read()

    play(story, one, two)


def test_those_who_ask_at_the_same_time_share_a_reading_that_began_after_they_asked() -> None:
    async def story(scene: Scene) -> None:
        await scene.read()
        scene.asked.clear()
        texts = await asyncio.gather(*(scene.gateways.text(1.0) for _ in range(10)))
        assert len(set(texts)) == 1
        assert sorted(scene.asked) == [ONE, ONE, TWO, TWO]

    play(story, Pod(ONE), Pod(TWO))


def test_arrivals_see_no_burst_when_one_comes_goes_or_is_silent() -> None:
    one, two = Pod(ONE, calls=1000, in_flight=5), Pod(TWO, calls=1000, in_flight=50)

    async def story(scene: Scene) -> None:
        arrivals = Arrivals()

        async def rate() -> float:
            one.calls += 50
            two.calls += 50
            arrivals.tell((await scene.read()).text, scene.clock.now)
            return arrivals.of("m").recent

        await rate()
        assert await rate() == 20
        two.holds.clear()
        assert (await rate(), arrivals.fault) == (10, "")  # what is known of it comes later
        two.holds.set()
        assert (await rate(), arrivals.fault) == (30, "")
        await scene.comes(Pod(THREE, calls=9000))
        assert (await rate(), arrivals.fault) == (20, "")

    play(story, one, two)
