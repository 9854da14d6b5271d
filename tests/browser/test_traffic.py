"""Moving calls in the browser: a split, and the way back."""

import re

import pytest
from playwright.sync_api import Page, expect

from browser.scene import Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]
TRAFFIC = re.compile("/traffic/digits")


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
    for version, weight in ((1, 3), (2, 1)):
        page.locator(f"#weight-{version}").fill(str(weight))
    form = page.locator("form[data-split]")
    form.get_by_label("Reason (for the history)").fill("the candidate did well")
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
