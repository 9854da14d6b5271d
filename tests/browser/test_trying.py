"""Trying a model in the browser: drawn, dropped and typed inputs, two versions side by side."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect

from browser.conftest import Visitor
from browser.hands import choose, give_picture, run, stroke
from browser.scene import DISAGREE, SEVEN, Stage

pytestmark = pytest.mark.triton


def best(page: Page, side: str) -> Locator:
    return page.locator(f"[data-result] .side-{side} tr.first .what")


def test_somebody_draws_a_digit_and_both_versions_say_what_it_is(page: Page) -> None:
    page.goto("/")
    page.get_by_role("navigation").get_by_role("link", name="Try", exact=True).click()
    page.get_by_role("row", name="digits").get_by_role("link", name="Compare 1 and 2").click()
    choose(page, "Draw")
    canvas = page.get_by_label(re.compile("Drawing area"))
    canvas.scroll_into_view_if_needed()
    stroke(page, canvas, (0.25, 0.15), (0.72, 0.15), (0.45, 0.88))
    run(page)
    expect(best(page, "a")).to_have_text(re.compile("7"))
    expect(best(page, "b")).to_have_text(re.compile("7"))
    expect(page.get_by_alt_text(re.compile("Input x"))).to_be_visible()


@pytest.mark.slow
def test_a_digit_is_drawn_and_tried_without_a_mouse(page: Page) -> None:
    page.goto("/try/digits?a=1&b=2")
    tab = page.get_by_role("tab", name="Draw", exact=True)
    page.get_by_role("tab", selected=True).first.focus()
    for _ in range(10):
        if tab.get_attribute("aria-selected") == "true":
            break
        page.keyboard.press("ArrowRight")
    canvas = page.get_by_label(re.compile("Drawing area"))
    for _ in range(10):
        if canvas.evaluate("one => one === document.activeElement"):
            break
        page.keyboard.press("Tab")
    expect(canvas).to_be_focused()
    for _ in range(11):
        page.keyboard.press("ArrowUp")
    for _ in range(22):
        page.keyboard.press("Shift+ArrowDown")
    run(page)
    expect(best(page, "a")).to_have_text(re.compile(r"^\s*1\s*$"))


def test_two_versions_are_compared_and_the_difference_is_told(
    visitor: Visitor, page: Page, stage: Stage
) -> None:
    page.goto("/try/digits?a=1&b=2")
    give_picture(page, DISAGREE)
    run(page)
    expect(best(page, "a")).to_contain_text("1")
    expect(best(page, "b")).to_contain_text("2")
    expect(page.get_by_role("region", name="Differences by output")).to_contain_text("no")
    page.get_by_role("button", name="Copy link").click()
    link = page.evaluate("navigator.clipboard.readText()")
    elsewhere = visitor.open(stage.up.admin)
    elsewhere.goto(link)
    expect(best(elsewhere, "a")).to_contain_text("1")
    expect(best(elsewhere, "b")).to_contain_text("2")


@pytest.mark.slow
def test_what_was_typed_is_still_there_after_a_run_or_a_refusal(
    visitor: Visitor, page: Page, stage: Stage
) -> None:
    visitor.watch.allow("status of 422", "Status Error Code 422")
    page.goto("/try/digits?a=1&b=2")
    choose(page, "JSON")
    lists = page.get_by_label("Nested lists")
    lists.fill("[1, 2, 3]")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#problem")).to_contain_text("x")
    expect(lists).to_have_value("[1, 2, 3]")
    typed = str([[[0.5]] * 8] * 8)
    lists.fill(typed)
    run(page)
    expect(page.get_by_label("Nested lists")).to_have_value(typed)
    expect(page.get_by_label("Version A")).to_have_value("1")
    page.get_by_text("Same call with").click()
    expect(page.get_by_text(f"http://{stage.up.http}").first).to_be_visible()


@pytest.mark.slow
def test_an_answer_that_is_right_becomes_a_case_of_the_contract(page: Page, stage: Stage) -> None:
    page.goto("/try/digits?a=1&b=2")
    give_picture(page, SEVEN)
    run(page)
    page.get_by_role("button", name="Save to contract").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("B, version 2").check()
    dialog.get_by_label("Case name").fill("a plain seven")
    dialog.get_by_label("Reason (for the history)").fill("every version must know it")
    dialog.get_by_role("button", name="Save").press("Enter")
    expect(dialog.locator("#save-said")).to_contain_text("Saved")
    assert "a plain seven" in str(stage.up.get("/api/models/digits/versions/2/contract"))
    dialog.get_by_role("link", name="Version 2").click()
    expect(page.get_by_role("rowheader", name="a plain seven")).to_be_visible()
