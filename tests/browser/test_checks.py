"""The checks themselves: none finds anything on a page that is right, each finds its own fault."""

import pytest
from playwright.sync_api import Browser, Page

from browser import checks

# No Triton here, but a browser, which is brought for `make test` as they are.
pytestmark = [pytest.mark.triton, pytest.mark.slow]
ALL = {
    "overflow": checks.overflow,
    "cut": checks.cut_texts,
    "overlap": checks.overlapping,
    "axe": checks.barriers,
    "keyboard": checks.unreachable,
}
PAGE = """<!doctype html><html lang="en"><head><title>A page</title><style>
body { margin: 0; font: 16px sans-serif; background: #fff; color: #111 }
:focus-visible { outline: 3px solid #00f }
.unseen:focus-visible { outline: none }
</style></head><body><main><h1>A</h1>%s</main></body></html>"""
RIGHT = """
<p>A text with <a href="/x">a link</a>.</p>
<form><label>Name <input></label> <button>Send</button></form>
<label><input type="radio" name="r"> one</label> <label><input type="radio" name="r"> two</label>
<div style="width: 4rem; overflow: auto; white-space: nowrap" tabindex="0" role="region"
  aria-label="N">a text that is longer</div>
"""
TRAP = "<script>addEventListener('keydown', (event) => event.preventDefault())</script>"
BOX = '<p style="width: 4rem; white-space: nowrap; %s">a text that is longer than its box</p>'
WRONG = {
    "too wide": ("overflow", '<p style="width: 3000px">wide</p>'),
    "cut at the side": ("cut", BOX % "overflow: hidden"),
    "cut below": ("cut", '<p style="height: 8px; overflow: hidden">a text that is higher</p>'),
    "sticks out": ("cut", BOX % ""),
    "on each other": (
        "overlap",
        '<button>one</button><div style="position: relative; top: -1rem"><button>2</button></div>',
    ),
    "no label": ("axe", '<input id="name">'),
    "no contrast": ("axe", '<p style="color: #ccc">hardly to be read</p>'),
    "no focus": ("keyboard", '<button class="unseen">one</button>'),
    "out of order": ("keyboard", '<button>one</button><button tabindex="1">two</button>'),
    "a trap": ("keyboard", f"<button>1</button><button>2</button>{TRAP}"),
}


@pytest.fixture
def page(chromium: Browser) -> Page:
    return chromium.new_page()


def test_a_check_finds_its_fault_and_nothing_on_a_page_that_is_right(page: Page) -> None:
    page.set_content(PAGE % RIGHT)
    found = {name: check(page) for name, check in ALL.items()}
    assert not any(found.values()), found
    for fault, (check, body) in WRONG.items():
        page.set_content(PAGE % body)
        assert ALL[check](page), f"{check} does not see: {fault}"
