"""Changing how a version is run, in the browser: by keys, without scripts, and by two people."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from browser.scene import Stage, call

pytestmark = [pytest.mark.triton, pytest.mark.slow]
PLAIN = "/models/plain/versions/1/batching"
API = f"/api{PLAIN.removesuffix('batching')}serving-configuration"


@pytest.fixture(autouse=True)
def as_before(stage: Stage) -> Iterator[None]:
    """Other tests find the folder as it is run by itself."""
    yield
    call(stage.up, "PUT", API, {"fields": {}})


def fields(stage: Stage) -> dict[str, object]:
    found: dict[str, object] = stage.up.get(API)["fields"]
    return found


def test_a_change_is_checked_applied_and_taken_back_by_keys(page: Page, stage: Stage) -> None:
    page.goto("/models/plain/versions/1")
    page.get_by_role("link", name="Batching").press("Enter")
    size = page.get_by_label("Maximum batch size")
    size.fill("4")
    size.press("Control+Enter")
    expect(page.locator("#change .added")).to_contain_text("max_batch_size: 4")
    assert fields(stage) == {}

    page.get_by_label("Reason (for the history)").fill("smaller")
    with page.expect_navigation():
        page.get_by_role("button", name="Apply").press("Enter")
    expect(page.locator("#progress .verdict")).to_contain_text("Applied")
    expect(page.locator("#meaning")).to_contain_text("Before: ")
    expect(page.get_by_label("Maximum batch size")).to_have_value("4")
    assert fields(stage) == {"max_batch_size": 4}

    page.get_by_role("link", name="Undo…").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("Undo")
    page.get_by_role("button", name="Undo").press("Enter")
    expect(page.locator("#progress .verdict")).to_contain_text("Applied")
    expect(page.get_by_label("Maximum batch size")).to_have_value("8")
    assert fields(stage) == {}


def test_somebody_elses_change_comes_into_the_form_around_what_was_typed(
    page: Page, stage: Stage
) -> None:
    page.goto(PLAIN)
    page.get_by_label("Instances").first.fill("cpu:2")
    with page.expect_response("**/seen*"):  # what is measured is read anew
        pass
    expect(page.locator("#seen[hx-get]:not(.htmx-swapping)")).to_have_count(1)
    expect(page.get_by_label("Instances").first).to_be_focused()
    call(stage.up, "PUT", API, {"fields": {"max_batch_size": 4}}, **{"servegate-author": "bob"})
    expect(page.locator("#change [role=status]")).to_contain_text(
        "bob changed the configuration in the meantime"
    )
    expect(page.get_by_label("Maximum batch size")).to_have_value("4")
    expect(page.get_by_label("Instances").first).to_have_value("cpu:2")


def test_advice_types_itself_into_the_form(page: Page) -> None:
    page.goto(PLAIN)
    page.get_by_label("Reason (for the history)").fill("as advised")
    link = """<a href="?delay=2ms" data-fill='{"delay": "2ms", "dynamic": "on"}'>Fill in</a>"""
    page.locator("#seen h2").first.evaluate("(one, link) => { one.innerHTML += link }", link)
    page.get_by_role("link", name="Fill in").press("Enter")
    expect(page.get_by_label("Queue delay")).to_have_value("2ms")
    expect(page.get_by_label("Queue delay")).to_be_focused()
    expect(page.get_by_label("Dynamic batching")).to_be_checked()
    expect(page.get_by_label("Reason (for the history)")).to_have_value("as advised")
