"""The Live page: it shows calls while they come, and holds still when it is told to."""

import re

import pytest
from background import Load
from harness import ROOT
from playwright.sync_api import Page, expect

from browser.scene import Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SEVEN = (ROOT / "examples/digits/seven.json").read_bytes()
PATH = "/v2/models/digits/infer"


@pytest.fixture
def calling(stage: Stage) -> Load:
    return Load(stage.up.http, lambda number, count: (PATH, SEVEN, "seven"), clients=1)


def test_calls_are_shown_while_they_come_and_a_pause_holds_the_numbers_still(
    page: Page, calling: Load
) -> None:
    page.goto("/live?model=digits")
    with calling:
        rate = page.locator("[data-tile=calls]")
        expect(rate).to_have_text(re.compile("[1-9]"))
        expect(page.locator("[data-chart=calls] canvas")).to_be_visible()
        expect(page.locator("#replicas tbody tr")).to_have_count(1)
        expect(page.locator("#replicas")).to_contain_text("local-0")
        expect(page.locator("#summary")).to_contain_text("1 of 1 replicas ready.")
        nodes = page.locator("*").count()
        first = page.locator("#replicas tbody").inner_text()
        expect(page.locator("#replicas tbody")).not_to_have_text(first, use_inner_text=True)
        assert abs(page.locator("*").count() - nodes) < 40
        page.locator("#pause").press("Enter")
        expect(page.locator("#pause")).to_have_attribute("aria-pressed", "true")
        held = page.locator("#tiles").inner_text()
        calling.wait_calls(300)
        assert page.locator("#tiles").inner_text() == held
        page.locator("#pause").press("Enter")
        expect(page.locator("#tiles")).not_to_have_text(held, use_inner_text=True)
    assert not calling.failures
