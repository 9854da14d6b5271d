"""Every page, wide and narrow, by day and by night: nothing is cut, covered or out of reach.

A page is visited once for each width, and looked at in every way while it is there: to open it
takes as long as a check does.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, Request, expect

from browser import checks
from browser.conftest import Visitor
from browser.pages import GUARDED, PAGES, PARTS, Listed, routes
from browser.scene import Guarded, Stage

triton = pytest.mark.triton
WIDE, NARROW = 1280, 390
SMOKE = ("models", "version", "try", "evaluation", "live")  # what `make test` looks at, wide
# What a page costs at its first visit: what it is made of, not the pictures and data it shows.
_PARTS = frozenset({"document", "stylesheet", "script", "font"})
MOST_BYTES = 150_000  # uncompressed
MOST_REQUESTS = 10


def cases() -> Iterator[object]:
    for name in PAGES | GUARDED:
        for width in (WIDE, NARROW):
            yield pytest.param(
                name, width, marks=[pytest.mark.slow] if is_slow(name, width) else []
            )


def is_slow(name: str, width: int) -> bool:
    return width == NARROW or name not in SMOKE


def test_every_page_of_the_site_is_listed_here() -> None:
    listed = {page.route for page in (PAGES | GUARDED).values()}
    assert routes() - PARTS - listed == set()
    assert listed - routes() - {""} == set()


@triton
@pytest.mark.parametrize(("name", "width"), list(cases()))
def test_a_page_costs_little_and_all_of_it_is_seen_read_and_reached(
    visitor: Visitor, request: pytest.FixtureRequest, name: str, width: int
) -> None:
    home, path = place(request, name, width)
    page = visitor.open(home, width=width)
    is_there = name != "nothing there"
    if not is_there:
        visitor.watch.allow("404")
    cost = visit(page, home + path)
    assert (urlsplit(path).path in cost.parts) == is_there
    settle(page)
    listed: Listed = (PAGES | GUARDED)[name]
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("h1")).to_contain_text(listed.h1)
    found = [*cost.faults(), *checks.overlapping(page), *cut(page)]
    found += [*by_day_and_by_night(page), *checks.unreachable(page)]
    if width == NARROW:
        found += [*in_dialogs(page), *where_it_unfolds(page, is_ever_loading=name == "live")]
    assert not found, "\n".join(found)


def place(request: pytest.FixtureRequest, name: str, width: int) -> tuple[str, str]:
    if name in GUARDED:
        guarded: Guarded = request.getfixturevalue("guarded")
        return guarded.up.admin, GUARDED[name].path
    stage: Stage = request.getfixturevalue("stage")
    if is_slow(name, width):
        stage.make_everything()
    return stage.up.admin, PAGES[name].on(stage)


def settle(page: Page) -> None:
    """Until its scripts have run and what they fetched is there."""
    page.wait_for_load_state("load")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def cut(page: Page) -> list[str]:
    return [*checks.overflow(page), *checks.cut_texts(page)]


def by_day_and_by_night(page: Page) -> list[str]:
    """Barriers in both schemes of colours; afterwards it is day."""
    by_day = checks.barriers(page)
    page.emulate_media(color_scheme="dark")
    by_night = checks.barriers(page)
    page.emulate_media(color_scheme="light")
    return by_day + [f"by night: {fault}" for fault in by_night]


def in_dialogs(page: Page) -> list[str]:
    """What is wrong in a dialog; each takes the focus and gives it back."""
    found: list[str] = []
    for button in page.locator("[data-opens]:visible").all():
        button.press("Enter")
        expect(page.locator("dialog[open]")).to_be_visible()
        assert checks.is_in_dialog(page), button.inner_text()
        found += [*cut(page), *checks.barriers(page, within="dialog[open]")]
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)
        expect(button).to_be_focused()
    return [f"in a dialog: {fault}" for fault in found]


def where_it_unfolds(page: Page, *, is_ever_loading: bool) -> list[str]:
    """What is wrong once all that can be unfolded is, and on each tab."""
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    if not is_ever_loading:
        page.wait_for_load_state("networkidle")
    found = [*checks.overlapping(page), *checks.barriers(page)]
    for tab in page.get_by_role("tab").all():
        tab.click()
        found += cut(page)
    return [f"unfolded: {fault}" for fault in found + cut(page)]


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes, uncompressed, by path; a page in a frame counts."""

    parts: dict[str, int]

    @property
    def size(self) -> int:
        return sum(self.parts.values())

    def faults(self) -> list[str]:
        told = ", ".join(f"{path} {size}" for path, size in self.parts.items())
        too_large = [f"{self.size} bytes: {told}"] if self.size > MOST_BYTES else []
        too_many = (
            [f"{len(self.parts)} requests: {told}"] if len(self.parts) > MOST_REQUESTS else []
        )
        return too_large + too_many


def visit(page: Page, url: str) -> Cost:
    asked: list[Request] = []

    def note(request: Request) -> None:
        asked.append(request)

    page.on("request", note)
    page.goto(url)
    page.wait_for_load_state("load")
    page.remove_listener("request", note)
    parts = [one for one in asked if one.resource_type in _PARTS or "/static/" in one.url]
    answers = [(one.url, one.response()) for one in parts]
    return Cost(
        {
            urlsplit(url).path: len(answer.body())
            for url, answer in answers
            if answer is not None and answer.status < 300
        }
    )
