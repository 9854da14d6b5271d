"""Moving calls in the browser: a split, a label, the way back, and what somebody else did."""

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Visitor
from browser.scene import Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAFFIC = re.compile("/traffic/digits")


@pytest.fixture(autouse=True)
def as_before(stage: Stage) -> Iterator[None]:
    """Other tests find the split of the demo."""
    yield
    stage.up.split("digits", v1=90, v2=10)


def weights(page: Page, first: int, second: int, why: str = "") -> None:
    """Fill the form in."""
    for version, weight in ((1, first), (2, second)):
        page.locator(f"#weight-{version}").fill(str(weight))
    page.locator("form[data-split]").get_by_label("Reason (for the history)").fill(why)


def split(stage: Stage) -> dict[str, int]:
    found: dict[str, int] = stage.up.get("/api/routes/digits")["split"]
    return found


def test_a_split_is_changed_and_rolled_back(page: Page, stage: Stage) -> None:
    page.goto("/models/digits")
    page.get_by_role("link", name="Traffic").first.click()
    expect(page).to_have_url(TRAFFIC)
    slider = page.get_by_label("Weight of version 2")
    slider.focus()
    for _ in range(5):
        slider.press("ArrowRight")
    expect(page.locator("#weight-2")).to_have_value("15")
    weights(page, 3, 1, "the candidate did well")
    expect(page.locator("[data-share] output")).to_have_text(["75.0 %", "25.0 %"])
    with page.expect_navigation():
        page.keyboard.press("Enter")
    newest = page.locator("ol.changes li").first
    expect(newest).to_contain_text("the candidate did well")
    assert split(stage) == {"1": 3, "2": 1}

    back = page.locator("ol.changes li", has_text="Split").nth(1).get_by_role("link")
    back.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Roll back to revision")
    expect(page.locator("dl.facts").first).to_contain_text("90")
    page.get_by_label("Reason (for the history)").fill("it did not")
    page.get_by_role("button", name="Roll back").press("Enter")
    expect(page).to_have_url(TRAFFIC)
    expect(page.locator("ol.changes li").first).to_contain_text("it did not")
    assert split(stage) == {"1": 90, "2": 10}


def test_a_stale_page_changes_nothing_and_shows_what_is_now(
    visitor: Visitor, page: Page, stage: Stage
) -> None:
    page.goto("/traffic/digits")
    stage.up.split("digits", v1=1, v2=1)
    weights(page, 0, 1)
    page.get_by_role("button", name="Set traffic split").click()
    expect(page.get_by_text("Your change was not saved")).to_be_visible()
    expect(page.locator("#weight-1")).to_have_value("1")
    assert split(stage) == {"1": 1, "2": 1}


def test_a_label_is_set_moved_and_removed(page: Page, stage: Stage) -> None:
    def labels() -> dict[str, int]:
        found: dict[str, int] = stage.up.get("/api/models/digits")["labels"]
        return found

    def line(label: str) -> Locator:
        return page.locator(".named", has_text=label)

    def of(label: str) -> Locator:
        """What the line says; its dialogs offer every version, so they are left out."""
        return line(label).locator("> span").first

    page.goto("/traffic/digits")
    page.get_by_label("New label").fill("trial")
    page.get_by_role("button", name="Set", exact=True).click()
    expect(of("trial")).to_contain_text("points to version 2")
    assert labels()["trial"] == 2
    line("trial").get_by_role("button", name="Move…", exact=True).click()
    page.get_by_role("dialog").get_by_role("combobox").select_option("1")
    page.get_by_role("dialog").get_by_role("button", name="Move").press("Enter")
    expect(of("trial")).to_contain_text("points to version 1")
    assert labels()["trial"] == 1
    line("trial").get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").press("Enter")
    expect(of("trial")).to_have_count(0)
    assert "trial" not in labels()
