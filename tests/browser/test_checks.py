"""The checks themselves: none finds anything on a page that is right, each finds its own fault."""

import re

import pytest
from playwright.sync_api import Page

from browser import checks, loading
from browser.bad_pages import HOME, RIGHT, open_page
from browser.conftest import Visitor

# No Triton here, but a browser, which is brought for `make test` as they are.
pytestmark = [pytest.mark.triton, pytest.mark.slow]
ALL = {
    "overflow": checks.overflow,
    "cut": checks.cut_texts,
    "overlap": checks.overlapping,
    "axe": checks.barriers,
    "keyboard": checks.unreachable,
}
WRONG = {
    "too wide": ("overflow", '<p class="wide">wide</p>'),
    "cut at the side": ("cut", '<p class="hidden">a text that is longer than its box</p>'),
    "cut below": ("cut", '<p class="low">a text that is higher than its box</p>'),
    "sticks out": ("cut", '<p class="narrow">a text that is longer than its box</p>'),
    "on each other": ("overlap", '<button>one</button><div class="on"><button>2</button></div>'),
    "no label": ("axe", '<input id="name">'),
    "no contrast": ("axe", '<p class="faint">hardly to be read</p>'),
    "no focus": ("keyboard", '<button class="unseen">one</button>'),
    "out of order": ("keyboard", '<button>one</button><button tabindex="1">two</button>'),
    "a trap": ("keyboard", '<button>1</button><button>2</button><script src="/trap.js"></script>'),
}
DONE = {
    "throws": ('<script src="/throw.js"></script>', "thrown: .*broken"),
    "complains": ('<script src="/complain.js"></script>', "something is wrong"),
    "runs a script inline": ("<script>1</script>", "Content Security Policy"),
    "has a style inline": ('<p style="color: red">red</p>', "Content Security Policy"),
    "asks elsewhere": (
        '<link rel="stylesheet" href="//cdn.test/x.css">',
        "elsewhere: GET http://c",
    ),
    "opens a box": ('<script src="/ask.js"></script>', "dialog: hurt"),
}


@pytest.fixture
def page(visitor: Visitor) -> Page:
    return visitor.open(HOME)


@pytest.mark.parametrize("check", ALL)
def test_a_check_finds_nothing_on_a_page_that_is_right(page: Page, check: str) -> None:
    open_page(page, RIGHT)
    assert ALL[check](page) == []


@pytest.mark.parametrize("fault", WRONG)
def test_a_check_finds_its_fault(page: Page, fault: str) -> None:
    check, body = WRONG[fault]
    open_page(page, f"<h1>A</h1>{body}")
    assert ALL[check](page), f"{check} sees nothing wrong"


@pytest.mark.parametrize("deed", DONE)
def test_the_watch_notes_what_a_page_does(visitor: Visitor, page: Page, deed: str) -> None:
    body, pattern = DONE[deed]
    open_page(page, f"<h1>A</h1>{body}")
    assert any(re.search(pattern, fault) for fault in visitor.watch.faults), visitor.watch.faults
    visitor.watch.allow(pattern, "Content Security Policy")
    assert visitor.watch.faults == []


def test_the_watch_notes_a_page_without_a_policy(visitor: Visitor, page: Page) -> None:
    open_page(page, RIGHT, policy="")
    assert visitor.watch.faults == [f"no policy: {HOME}/: ''"]
    visitor.watch.allow("no policy")


def test_the_cost_of_a_page_is_what_it_is_made_of(page: Page) -> None:
    open_page(page, f"<h1>A</h1>{'<script src=/a.js></script>' * 3}")
    cost = loading.visit(page, HOME + "/")
    assert set(cost.parts) == {"/", "/style.css", "/a.js"} and cost.faults() == []


def test_a_page_that_is_too_large_is_said_so(page: Page) -> None:
    many = "".join(f'<script src="/{n}.js"></script>' for n in range(10))
    open_page(page, f"<h1>A</h1>{many}<p>{'long ' * 30_000}</p>")
    size, requests = loading.visit(page, HOME + "/").faults()
    assert "bytes: / 15" in size and requests.startswith("12 requests")
