"""What people do on the Try page, with a mouse and with keys."""

import re
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

_RUN = re.compile(r"/runs/\w+$")


def choose(page: Page, name: str) -> None:
    page.get_by_role("tab", name=name, exact=True).click()


def give_picture(page: Page, path: Path) -> None:
    choose(page, "Picture")
    page.get_by_role("tabpanel", name="Picture").locator("input[type=file]").set_input_files(path)


def run(page: Page) -> None:
    """By the keys that the page names, and until the answers are there."""
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(_RUN)
    expect(page.locator("[data-result]")).to_be_visible()


def stroke(page: Page, canvas: Locator, *points: tuple[float, float]) -> None:
    """A line with the mouse; points are shares of the canvas."""
    box = canvas.bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    page.mouse.move(*places[0])
    page.mouse.down()
    for place in places[1:]:
        page.mouse.move(*place, steps=12)
    page.mouse.up()
