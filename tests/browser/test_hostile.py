"""Attacks in every text that others give: they are shown as what they are, and nothing runs."""

from urllib.parse import quote

import pytest
from playwright.sync_api import Page, expect

from browser.conftest import Visitor
from browser.pages import PAGES, routes
from browser.scene import ATTACK, HOSTILE, LINK, Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]
HURT = """
() => [
  ...(typeof hurt === "undefined" ? [] : ["a script ran"]),
  ...[...document.querySelectorAll("script:not([src])")].map((one) => `script: ${one.text}`),
  ...[...document.querySelectorAll("img")].map((one) => one.getAttribute("src"))
    .filter((src) => src === "x"),
  ...[...document.querySelectorAll("*")].flatMap((one) => [...one.attributes])
    .filter((one) => /^on/.test(one.name)
      || (/href|src|action/.test(one.name) && /^\\s*javascript:/i.test(one.value)))
    .map((one) => `${one.name}=${one.value}`),
]
"""
# Pages that tell what was said of a model, and pages that list it by its name alone.
TOLD = {
    "model, hostile": ATTACK,
    "version, hostile": ATTACK,
    "traffic, hostile": ATTACK,
    "a try, hostile": ATTACK,
    "evaluation, hostile": ATTACK,
    "dataset, hostile": ATTACK,
    "load tests": ATTACK,
}
IN_LISTS = ("models", "choose what to try", "tries", "evaluations", "live")
NAMES = ("model", "dataset", "a", "b", "bucket", "label", "predicted", "slice", "against", "next")


@pytest.fixture(autouse=True)
def everything(stage: Stage) -> None:
    stage.make_everything()


def open_all(page: Page) -> None:
    for folded in page.locator("details:not([open]) > summary").all():
        if folded.is_visible():
            folded.click()
    page.wait_for_load_state("networkidle")


@pytest.mark.parametrize("name", [*TOLD, *IN_LISTS])
def test_an_attack_is_shown_as_text(page: Page, stage: Stage, name: str) -> None:
    page.goto(PAGES[name].on(stage))
    if name != "live":  # its stream never ends
        open_all(page)
    text = page.locator("body").inner_text()
    assert TOLD.get(name, HOSTILE) in text
    assert page.evaluate(HURT) == []


@pytest.mark.parametrize("path", sorted(routes() - {"/static/{version}/{name:path}"}))
def test_an_attack_in_an_address_comes_back_as_text_or_not_at_all(
    visitor: Visitor, page: Page, path: str
) -> None:
    visitor.watch.allow(r"status of 4\d\d")
    filled = path.replace("{number}", "1").replace("{revision}", "1")
    for part in ("model", "identity", "name", "slug"):
        filled = filled.replace(f"{{{part}}}", quote(ATTACK, safe=""))
    for text in (ATTACK, LINK):
        page.goto(filled + "?" + "&".join(f"{name}={quote(text, safe='')}" for name in NAMES))
        expect(page.locator("body")).to_be_visible()
        assert page.evaluate(HURT) == []


def test_a_file_of_a_version_does_not_run_when_it_is_opened(page: Page, stage: Stage) -> None:
    answer = page.request.get(f"{stage.up.admin}/api/models/{HOSTILE}/versions/1/files/labels.txt")
    assert "<script>" in answer.text()
    assert "html" not in answer.headers["content-type"]
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_reason_that_attacks_is_kept_and_shown(page: Page) -> None:
    page.goto(f"/traffic/{HOSTILE}")
    page.locator("form[data-split]").get_by_label("Reason (for the history)").fill(ATTACK)
    with page.expect_navigation():
        page.locator("form[data-split] button").click()
    expect(page.locator("ol.changes li").first).to_contain_text(ATTACK)
    assert page.evaluate(HURT) == []
