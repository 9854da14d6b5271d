"""Uploading a version in the browser, while the network is cut, and while somebody gives up."""

import hashlib
import math
import os
import re
from pathlib import Path

import harness
import pushing
import pytest
from playwright.sync_api import Page, Request, expect
from ports import free_ports
from relay import relay

from browser.conftest import Visitor
from browser.scene import Stage

pytestmark = [pytest.mark.triton, pytest.mark.slow]
MIB = 1 << 20
PIECE = 4 * MIB  # what the page sends in one request
SIZE = 10 * MIB
CUT = r"net::ERR_|Failed to load resource"
LONG = 60_000  # milliseconds until a version is served


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = pushing.source(tmp_path / "large", 2.0)
    (made / "1/weights.bin").write_bytes(os.urandom(SIZE))
    return made


def choose(page: Page, folder: Path, model: str) -> None:
    page.goto("/upload")
    page.get_by_label("Folder").set_input_files(folder)
    expect(page.locator("[data-files]")).to_contain_text("weights.bin")
    page.get_by_label("Model", exact=True).fill(model)


def test_an_upload_goes_on_where_the_network_was_cut(
    visitor: Visitor, stage: Stage, folder: Path
) -> None:
    visitor.watch.allow(CUT)
    offsets: list[int] = []

    def note(request: Request) -> None:
        if request.method == "PATCH":
            offsets.append(int(request.headers["upload-offset"]))

    with relay(stage.up.admin_port, room=0.6 * SIZE) as network:
        page = visitor.open(f"http://127.0.0.1:{network.port}")
        page.on("request", note)
        choose(page, folder, "large")
        page.get_by_label("Label (optional)").fill("candidate")
        page.keyboard.press("Enter")
        network.await_full()
        network.aim(*free_ports(1))  # where nobody is
        network.hang_up()
        network.raise_to(math.inf)
        expect(page.locator("[data-status]")).to_contain_text("Connection lost")
        network.aim(stage.up.admin_port)
        expect(page.get_by_text("Version 1 of large is ready")).to_be_visible(timeout=LONG)
    assert max(offsets) >= 0.5 * SIZE
    assert any(offset % PIECE for offset in offsets), "nothing went on within a piece"
    files = {one["path"]: one for one in pushing.state(stage.up, "large", 1)["files"]}
    sent = (folder / "1/weights.bin").read_bytes()
    assert files["1/weights.bin"]["sha256"] == hashlib.sha256(sent).hexdigest()
    assert pushing.factor_of(stage.up, "large", "candidate") == 2.0
    page.get_by_role("link", name="View the version").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("large")


def unfinished(stage: Stage) -> list[str]:
    """The models of uploads that are on their way."""
    return [one["model"] for one in stage.up.get("/api/uploads")]


def test_who_gives_up_leaves_nothing_behind(visitor: Visitor, stage: Stage, folder: Path) -> None:
    visitor.watch.allow(CUT)
    with relay(stage.up.admin_port, room=0.6 * SIZE) as network:
        page = visitor.open(f"http://127.0.0.1:{network.port}")
        choose(page, folder, "given-up")
        page.get_by_role("button", name="Upload", exact=True).click()
        network.await_full()
        page.get_by_role("button", name="Cancel").press("Enter")
        expect(page.get_by_text("Cancelled.")).to_be_visible()
        network.raise_to(math.inf)
        harness.until(lambda: "given-up" not in unfinished(stage), 20)


def test_one_onnx_file_becomes_a_version_and_a_folder_of_notes_is_refused(
    page: Page, stage: Stage, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/readme.txt").write_text("no model")
    page.goto("/upload")
    page.get_by_label("Folder").set_input_files(tmp_path / "notes")
    expect(page.get_by_text("This is not a model folder")).to_be_visible()
    expect(page.get_by_role("button", name="Upload", exact=True)).to_be_disabled()
    (tmp_path / "triple.onnx").write_bytes(pushing.times(3.0))
    page.goto("/upload")
    page.get_by_label(re.compile("Or files")).set_input_files(tmp_path / "triple.onnx")
    expect(page.get_by_label("Model", exact=True)).to_have_value("triple")
    page.get_by_role("button", name="Upload", exact=True).press("Enter")
    expect(page.get_by_text("Version 1 of triple is ready")).to_be_visible(timeout=LONG)
    assert pushing.factor_of(stage.up, "triple") == 3.0
