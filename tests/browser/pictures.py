"""The pictures of pages in the documentation, taken anew. Not collected by itself:

    python -m pytest tests/browser/pictures.py

writes `docs/images/ui-*.png`: 1280 pixels wide, by day but for one, in 256 colours.
"""

import io
import re

import harness
import pytest
from background import Load
from PIL import Image
from playwright.sync_api import Page, expect

from browser.conftest import Visitor
from browser.hands import choose, give_picture, run, stroke
from browser.scene import Stage

pytestmark = pytest.mark.triton
FOLDER = harness.ROOT / "docs/images"
LARGEST = 150_000  # bytes of one picture
SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def keep(page: Page, name: str, *, height: int) -> None:
    """The upper part of a page as a picture."""
    page.mouse.move(0, 0)
    page.set_viewport_size({"width": 1280, "height": height})
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.wait_for_load_state("load")
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    reduced = shot.quantize(256, kmeans=2, dither=Image.Dither.NONE)
    packed = io.BytesIO()
    reduced.save(packed, "PNG", optimize=True)
    assert len(packed.getvalue()) < LARGEST
    assert not re.search("hurt=1", page.locator("body").inner_text())
    (FOLDER / f"ui-{name}.png").write_bytes(packed.getvalue())


def test_models(page: Page) -> None:
    page.goto("/models/digits")
    keep(page, "models", height=900)


def test_try(page: Page) -> None:
    page.goto("/try/digits?a=1&b=2")
    choose(page, "Draw")
    canvas = page.get_by_label(re.compile("Drawing area"))
    stroke(page, canvas, (0.25, 0.15), (0.72, 0.15), (0.45, 0.88))
    run(page)
    keep(page, "try", height=1340)


def test_compare(page: Page) -> None:
    page.goto("/try/digits?a=1&b=2")
    give_picture(page, harness.ROOT / "examples/digits/disagree.png")
    run(page)
    page.goto(page.url)
    keep(page, "compare", height=1180)


def test_evaluation(page: Page, stage: Stage) -> None:
    page.goto(f"/evaluations/{stage.evaluation}?bucket=only-b")
    page.wait_for_load_state("networkidle")
    keep(page, "evaluation", height=1500)


def test_traffic(page: Page) -> None:
    page.goto("/traffic/digits")
    keep(page, "traffic", height=900)


def test_live(visitor: Visitor, stage: Stage) -> None:
    page = visitor.open(stage.up.admin, dark=True)
    page.goto("/live?model=digits&minutes=1")
    path = "/v2/models/digits/infer"
    with Load(stage.up.http, lambda number, count: (path, SEVEN, "seven"), clients=2) as load:
        load.wait_calls(20_000, patience=120)
        expect(page.locator("[data-tile=calls]")).to_have_text(re.compile("[1-9]"))
        keep(page, "live", height=1150)


def test_batching(page: Page, stage: Stage) -> None:
    path = "/v2/models/digits/infer"
    with Load(stage.up.http, lambda number, count: (path, SEVEN, "seven"), clients=24) as load:
        load.wait_calls(20_000, patience=120)
        page.goto("/models/digits/versions/2/batching")
        expect(page.get_by_role("table").first).to_be_visible()
        keep(page, "batching", height=1250)
