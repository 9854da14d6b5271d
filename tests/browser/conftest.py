"""A real Chromium before a real gateway; every test's browser is watched.

Playwright keeps an event loop open in this thread. So everything here ends with the last test of
this package, and no test of it runs a loop of its own.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from browser import checks, scene
from browser.watching import Watch

PATIENCE = 20_000  # milliseconds for anything that a page shall show
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all tests; each has a context, so a profile, of its own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=checks.chromium(),
            args=["--no-sandbox", "--force-device-scale-factor=1"],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scene.Stage]:
    """`servegate up` with one Triton, in which everything is that a page may show."""
    with scene.gateway(tmp_path_factory.mktemp("browser")) as made:
        yield made


@pytest.fixture(scope="package")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[scene.Guarded]:
    with scene.guarded(tmp_path_factory.mktemp("guarded")) as made:
        yield made


class Visitor:
    """Somebody with browsers, each with a profile of its own, all of them watched."""

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._contexts: list[BrowserContext] = []
        self.watch = Watch()

    def open(self, home: str, *, width: int = 1280, dark: bool = False) -> Page:
        """A window on nothing yet, whose paths are those of `home`."""
        context = self._chromium.new_context(
            base_url=home,
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
        )
        context.set_default_timeout(PATIENCE)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        self.watch.see(context, home)
        self._contexts.append(context)
        return context.new_page()

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def visitor(chromium: Browser) -> Iterator[Visitor]:
    """What the pages that they open do wrong fails the test at its end."""
    made = Visitor(chromium)
    yield made
    made.close()
    assert not made.watch.faults, "\n".join(made.watch.faults)


@pytest.fixture
def page(visitor: Visitor, stage: scene.Stage) -> Page:
    """A window of 1280 pixels at the gateway."""
    return visitor.open(stage.up.admin)
