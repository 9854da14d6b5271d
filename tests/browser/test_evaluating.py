"""Evaluating in the browser: 500 held-out digits on both versions, and the rows behind numbers."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from browser import scene
from browser.conftest import Visitor
from browser.scene import ROWS, Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]


def bucket(page: Page, row: str, column: int) -> Any:
    return (
        page.locator("table.buckets").get_by_role("row", name=row).get_by_role("link").nth(column)
    )


def test_500_held_out_digits_are_evaluated_and_the_known_disagreements_found(
    page: Page, stage: Stage
) -> None:
    page.goto(f"/evaluations?dataset={stage.data}")
    page.get_by_label("Model", exact=True).select_option("digits")
    page.get_by_label("Version A").select_option("1")
    page.get_by_label("Version B").select_option("2")
    page.get_by_text("Gates and options").click()
    page.get_by_label("Gates (one condition per line)").fill("accuracy(b)>=0.95\naccuracy(a)>=0.99")
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/evaluations/[\w-]+$"))
    expect(page.locator("table.buckets")).to_be_visible()
    counts = stage.up.get(f"/api{urlsplit(page.url).path}")["report"]["buckets"]
    assert sum(counts.values()) == ROWS and counts["only-b"] > 0
    for row, column, name in (
        ("A right", 0, "both-right"),
        ("A right", 1, "only-a"),
        ("A wrong", 0, "only-b"),
        ("A wrong", 1, "both-wrong"),
    ):
        count = counts.get(name, 0)
        expect(bucket(page, row, column)).to_contain_text(re.compile(rf"^{count}\b"))
    gates = page.locator("ul.gates li")
    expect(gates).to_have_text([re.compile("✓ passed.*accuracy"), re.compile("✗ failed.*accuracy")])

    bucket(page, "A wrong", 0).click()
    expect(page.locator("#gallery .head")).to_contain_text(str(counts["only-b"]))
    expect(page.locator("[data-row]")).to_have_count(min(counts["only-b"], 60))


def test_rows_are_walked_and_opened_without_a_mouse(page: Page, stage: Stage) -> None:
    page.goto(f"/evaluations/{stage.evaluation}?bucket=only-b")
    rows = page.locator("[data-row]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(rows.nth(1)).to_be_focused()
    page.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/try/digits"))
    page.wait_for_load_state()
    page.keyboard.press("Control+Enter")
    expect(page.locator("[data-result]")).to_contain_text("ifferen")


def test_a_folder_of_pictures_becomes_a_dataset_unless_one_is_none(
    visitor: Visitor, page: Page, stage: Stage, tmp_path: Path
) -> None:
    visitor.watch.allow("status of 422")
    evil = tmp_path / "evil"
    (evil / "7").mkdir(parents=True)
    picture = "<svg xmlns='http://www.w3.org/2000/svg' onload='hurt=1'/>"
    (evil / "7/picture.png").write_text(picture)
    page.goto("/datasets")
    page.get_by_label("Name", exact=True).fill("evil")
    page.get_by_label("Folder of pictures").set_input_files(evil)
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="picture.png")).to_be_visible()
    assert "evil" not in [one["name"] for one in stage.up.get("/api/datasets")]

    folder = tmp_path / "few"
    for path, data in scene.held_out(6).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    page.goto("/datasets")
    page.get_by_label("Name", exact=True).fill("few")
    page.get_by_label("Folder of pictures").set_input_files(folder)
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page).to_have_url(re.compile("/datasets/few"))
    expect(page.locator("[data-row]")).to_have_count(6)
    for picture in page.locator("[data-row] img").all():
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("complete", True)
        assert picture.evaluate("one => one.naturalWidth") > 0
