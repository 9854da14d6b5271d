"""Checks of a page as it is in a browser: what can be seen to be wrong with it, as sentences.

Each gives a list; an empty one is right. `test_checks.py` has a page with each fault.
"""

import shutil
from functools import cache
from pathlib import Path
from typing import Any

import harness
import pytest
from playwright.sync_api import Page

AXE = harness.ROOT / ".venv-browser/node_modules/axe-core/axe.min.js"
_CHECKS = (Path(__file__).parent / "checks.js").read_text()
_AXE_RUN = """
async (within) => {
  const found = await axe.run(within, {resultTypes: ["violations"]});
  return found.violations
    .filter((one) => one.impact === "serious" || one.impact === "critical")
    .map((one) => `${one.id}: ${one.help}: ${one.nodes.slice(0, 3).map((n) => n.html).join(" ")}`);
}
"""
_BEFORE_THE_FIRST = """
() => {
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute("tabindex");
}
"""
_MOST_STOPS = 400


def chromium() -> str:
    """The browser that Debian brings."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail("there is no Chromium: make deps-browser")
    return found


def overflow(page: Page) -> list[str]:
    return _ask(page, "overflow")


def cut_texts(page: Page) -> list[str]:
    """Texts that are cut, or stick out of their block, where nothing scrolls."""
    return _ask(page, "cut")


def overlapping(page: Page) -> list[str]:
    return _ask(page, "overlapping")


def is_in_dialog(page: Page) -> bool:
    """Whether the focus is in the dialog that is open."""
    return bool(_ask(page, "isInDialog"))


def nodes(page: Page) -> int:
    return int(_ask(page, "nodes"))


def barriers(page: Page, within: str = "html") -> list[str]:
    """Serious and critical findings of axe-core, in what a selector selects."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(_axe())
    found: list[str] = page.evaluate(_AXE_RUN, within)
    return found


def unreachable(page: Page) -> list[str]:
    """What is wrong with the way of the Tab key: what it misses, where it sticks or is not seen."""
    wanted: list[str] = _ask(page, "stops")
    page.evaluate(_BEFORE_THE_FIRST)
    reached: list[int] = []
    faults: list[str] = []
    last: dict[str, Any] | None = None
    for _ in range(_MOST_STOPS):
        page.keyboard.press("Tab")
        now: dict[str, Any] | None = _ask(page, "focused")
        if now is None or (reached and now["at"] == reached[0] and len(reached) > 1):
            break
        if now == last and not now["mayComeTwice"]:
            faults.append(f"Tab sticks at {now['name']}")
            break
        faults += now["faults"]
        if now["at"] >= 0 and (not reached or now["at"] != reached[-1]):
            if reached and now["at"] < reached[-1]:
                faults.append(f"Tab goes back to {now['name']}")
            reached.append(now["at"])
        last = now
    else:
        faults.append(f"Tab does not come to an end: {last and last['name']}")
    missed = [wanted[at] for at in range(len(wanted)) if at not in reached]
    return faults + [f"Tab does not reach {one}" for one in missed]


@cache
def _axe() -> str:
    if not AXE.is_file():
        pytest.fail("axe-core is missing: make deps-browser")
    return AXE.read_text()


def _ask(page: Page, name: str) -> Any:
    return page.evaluate(f"({_CHECKS}).{name}()")
