"""The Live page's hints: how many replicas a pool should have and why, and advice on batching.

They come from a control plane by script: no Triton, and a clock that runs fast. The sampler, the
board, the API and the pages are the real ones. The server runs in a thread of its own, because
Playwright keeps a loop open in the tests'.
"""

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from admin.api.admin_scene import application, plane
from admin.web.web_scene import with_pages
from control.live.advised import DEMAND, Advised, model, told, tune
from playwright.sync_api import Page, expect

from browser import checks
from browser.conftest import Visitor
from browser.scene import ATTACK
from serve.app.http_server import HttpServer
from serve.capacity.scaling.signals import Code, Reason
from serve.control.live.sampler import LiveSampler

HELD = Reason(Code.STALE, "the readings of digits are 20 s old")
NOT_BOUND = Reason(Code.NOT_GPU_BOUND, "calls wait although the GPUs are busy 12 % of the time")
PACE = 0.1  # seconds of ours for one of theirs


class Hinted:
    """What people look at. `then` is called before each sample."""

    def __init__(self, folder: Path) -> None:
        self.scene = Advised()
        self.then: Callable[[], None] = lambda: None
        live = LiveSampler(self.scene.sources, clock=self.scene.clock, sleep=self._sleep)
        self._app, self._live = with_pages(application(plane(folder), live=live)), live
        self.url = ""

    async def serve(
        self, port: socket.socket, started: threading.Event, ended: asyncio.Event
    ) -> None:
        server = HttpServer(self._app, timeout_graceful_shutdown=1)
        async with asyncio.TaskGroup() as tasks:
            serving = tasks.create_task(server.serve(sockets=[port]))
            sampling = tasks.create_task(self._live.run())
            while not server.started:  # noqa: ASYNC110 - uvicorn tells it in no other way
                await asyncio.sleep(0.01)
            started.set()
            await ended.wait()
            sampling.cancel()
            server.should_exit = True
            await serving

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(PACE)
        self.scene.clock.now += 1.0
        self.scene.wall.now += 1.0
        self.then()


@contextlib.contextmanager
def hinted(folder: Path) -> Iterator[Hinted]:
    made: list[Hinted] = []
    started, loops = threading.Event(), []

    def run(port: socket.socket) -> None:
        made.append(Hinted(folder))

        async def serve() -> None:
            ended = asyncio.Event()
            loops.append((asyncio.get_running_loop(), ended))
            await made[0].serve(port, started, ended)

        asyncio.run(serve())

    with socket.create_server(("127.0.0.1", 0)) as port:
        thread = threading.Thread(target=run, args=(port,))
        thread.start()
        try:
            assert started.wait(30)
            made[0].url = f"http://localhost:{port.getsockname()[1]}"
            yield made[0]
        finally:
            for loop, ended in loops:
                loop.call_soon_threadsafe(ended.set)
            thread.join(30)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Hinted]:
    with hinted(tmp_path) as made:
        yield made


@pytest.fixture
def live(visitor: Visitor, site: Hinted) -> Page:
    return visitor.open(site.url)


def always(site: Hinted, *told_: object, batching: tuple[object, ...] = ()) -> None:
    """These hints hold from the next sample on."""

    def put() -> None:
        site.scene.board.put(told_)
        site.scene.batching = batching

    site.then = put


def card(page: Page, pool: str = "default"):
    return page.locator(f'[data-pool="{pool}"]')


def part(page: Page, name: str, pool: str = "default"):
    return card(page, pool).locator(f"[data-part={name}]")


def test_the_page_follows_the_hints_as_they_are_told(live: Page, site: Hinted) -> None:
    always(site, told(reasons=(DEMAND, NOT_BOUND), utilization=0.12), told("t4"))
    live.goto("/live")
    for name, text in {
        "asked": "3 replicas, 1 more than now",
        "desired": "3",
        "ready": "2",
        "demand": "2.31",
        "utilization": "12 %",
    }.items():
        expect(part(live, name)).to_have_text(text)
    expect(card(live).locator("canvas")).to_be_visible()
    expect(part(live, "reasons").locator("li")).to_have_text(
        [f"{DEMAND.text} demand", f"{NOT_BOUND.text} not-gpu-bound"]
    )
    expect(part(live, "models").locator("tr")).to_have_text(
        [re.compile(r"digits\s*2.31\s*290\s*131\s*12")]
    )
    expect(part(live, "held")).to_be_hidden()
    expect(card(live, "t4")).to_be_visible()

    always(site, told(desired=2, demand=1.4, reasons=(Reason(Code.STEADY, "2 are right"),)))
    expect(part(live, "desired")).to_have_text("2")
    expect(part(live, "reasons").locator("li")).to_have_text(["2 are right steady"])
    expect(card(live)).to_have_count(1)
    expect(card(live, "t4")).to_have_count(0)

    always(site, told(desired=2, demand=float("nan"), reasons=(HELD,), confidence="low"))
    expect(part(live, "held")).to_be_visible()
    expect(part(live, "demand")).to_have_text("—")
    expect(part(live, "reasons")).to_contain_text("the readings of digits are 20 s old")

    always(site, told(models=tuple(model(f"model-{number}") for number in range(11))))
    expect(part(live, "models").locator("tr")).to_have_count(8)
    expect(part(live, "more")).to_have_text("and 3 more")

    always(site, told(desired=0, ready=0, demand=0.0, models=()))
    expect(part(live, "asked")).to_have_text("no replicas, scaled to zero")
    expect(live.locator("#charts")).to_be_hidden()

    always(site, batching=(tune("m", 1),))
    advice = live.locator("[data-part=batching] li")
    expect(advice).to_have_text("m@1: 10 calls/s come. Try servegate batching tune m@1")
    expect(advice.get_by_role("link")).to_have_attribute("href", "/models/m/versions/1/batching")
    always(site)
    expect(live.locator("#hints")).to_be_hidden()


@pytest.mark.slow
def test_names_and_texts_that_attack_are_only_shown(live: Page, site: Hinted) -> None:
    reasons = (Reason(Code.DEMAND, ATTACK),)
    always(
        site,
        told(ATTACK, reasons=reasons, models=(model("__proto__"), model(ATTACK))),
        told("__proto__"),
        batching=(tune("constructor", 1),),
    )
    live.goto("/live")
    expect(live.locator("[data-pool]")).to_have_count(2)
    expect(live.locator("#hints")).to_contain_text(ATTACK)
    expect(live.get_by_role("rowheader", name="__proto__")).to_have_count(1)
    assert live.evaluate("window.hurt") is None


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_of_it_is_cut_covered_or_out_of_reach(
    visitor: Visitor, site: Hinted, width: int
) -> None:
    long = "a-pool-with-a-name-that-does-not-end-soon"
    always(
        site,
        told(reasons=(DEMAND, NOT_BOUND), utilization=0.12, confidence="low"),
        told(long, models=(model(), model("a-model-with-a-long-name-as-well"))),
        batching=(tune("m", 1),),
    )
    page = visitor.open(site.url, width=width)
    page.goto("/live")
    expect(card(page, long).locator("canvas")).to_be_visible()
    found = [*checks.overflow(page), *checks.cut_texts(page), *checks.overlapping(page)]
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme)
        found += checks.barriers(page)
    found += checks.unreachable(page)
    assert not found, "\n".join(found)
