"""Every page, wide and narrow, by day and by night: nothing is cut, covered or out of reach."""

from collections.abc import Callable

import pytest
from browser import checks, loading
from browser.conftest import Visitor
from browser.pages import GUARDED, PAGES, PARTS, Listed, routes
from browser.scene import Guarded, Stage
from playwright.sync_api import Page, expect

triton = pytest.mark.triton
WIDE, NARROW = 1280, 390
Opened = Callable[..., Page]


def test_every_page_of_the_site_is_listed_here() -> None:
    listed = {page.route for page in (PAGES | GUARDED).values()}
    assert routes() - PARTS - listed == set()
    assert listed - routes() - {""} == set()


@pytest.fixture
def opened(visitor: Visitor, request: pytest.FixtureRequest) -> Opened:
    """Opens a page by its name here; those of `GUARDED` at the gateway that needs keys."""

    def open_page(name: str, *, width: int = WIDE) -> Page:
        home, path = place(request, name)
        page = visitor.open(home, width=width)
        if name == "nothing there":
            visitor.watch.allow("404")
        answer = page.goto(path)
        assert answer is not None and (answer.ok or name == "nothing there"), answer
        settle(page)
        return page

    return open_page


def place(request: pytest.FixtureRequest, name: str) -> tuple[str, str]:
    """The gateway that has the page, and its path there."""
    if name in GUARDED:
        guarded: Guarded = request.getfixturevalue("guarded")
        return guarded.up.admin, GUARDED[name].path
    stage: Stage = request.getfixturevalue("stage")
    return stage.up.admin, PAGES[name].on(stage)


def settle(page: Page) -> None:
    """Until its scripts have run and what they fetched is there."""
    page.wait_for_load_state("load")
    page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


@triton
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", PAGES | GUARDED)
def test_nothing_of_a_page_is_cut_or_covered_or_a_barrier(
    opened: Opened, name: str, width: int
) -> None:
    page = opened(name, width=width)
    listed: Listed = (PAGES | GUARDED)[name]
    expect(page.locator("h1")).to_have_count(1)
    expect(page.locator("h1")).to_contain_text(listed.h1)
    found = [*checks.overflow(page), *checks.cut_texts(page), *checks.overlapping(page)]
    by_day = checks.barriers(page)
    page.emulate_media(color_scheme="dark")
    by_night = [f"by night: {fault}" for fault in checks.barriers(page)]
    assert not found + by_day + by_night, "\n".join(found + by_day + by_night)


@triton
@pytest.mark.parametrize("name", PAGES)
def test_what_unfolds_is_not_cut_or_covered_or_a_barrier(opened: Opened, name: str) -> None:
    page = opened(name, width=NARROW)
    page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
    if name != "live":  # whose stream never ends
        page.wait_for_load_state("networkidle")
    found = [*checks.overlapping(page), *checks.barriers(page)]
    for tab in page.get_by_role("tab").all():
        tab.click()
        found += [*checks.overflow(page), *checks.cut_texts(page)]
    found += [*checks.overflow(page), *checks.cut_texts(page)]
    assert not found, "\n".join(found)


@triton
@pytest.mark.parametrize("name", PAGES)
def test_a_dialog_takes_the_focus_and_gives_it_back(opened: Opened, name: str) -> None:
    page = opened(name, width=NARROW)
    found: list[str] = []
    for button in page.locator("[data-opens]:visible").all():
        button.press("Enter")
        expect(page.locator("dialog[open]")).to_be_visible()
        assert checks.is_in_dialog(page), button.inner_text()
        found += [*checks.overflow(page), *checks.cut_texts(page), *checks.barriers(page)]
        page.keyboard.press("Escape")
        expect(page.locator("dialog[open]")).to_have_count(0)
        expect(button).to_be_focused()
    assert not found, "\n".join(found)


@triton
@pytest.mark.parametrize("width", [WIDE, NARROW])
@pytest.mark.parametrize("name", PAGES | GUARDED)
def test_tab_reaches_everything_in_order_and_shows_where_it_is(
    opened: Opened, name: str, width: int
) -> None:
    found = checks.unreachable(opened(name, width=width))
    assert not found, "\n".join(found)


@triton
@pytest.mark.parametrize("name", PAGES | GUARDED)
def test_a_first_visit_costs_little(
    visitor: Visitor, request: pytest.FixtureRequest, name: str
) -> None:
    home, path = place(request, name)
    visitor.watch.allow("404")
    cost = loading.visit(visitor.open(home), home + path)
    assert not cost.faults(), "\n".join(cost.faults())
