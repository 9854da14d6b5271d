"""A real Chromium before a real gateway; every test's browser is watched.

Playwright keeps an event loop open in this thread. So everything here ends with the last test of
this package, and no test of it runs a loop of its own.
"""

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    Response,
    WebError,
    expect,
    sync_playwright,
)

from browser import checks, scene

PATIENCE = 20_000  # milliseconds for anything that a page shall show
expect.set_options(timeout=PATIENCE)
_INSIDE = ("data:", "blob:", "about:")


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


class Watch:
    """Notes what pages do wrong in the contexts it sees; `allow` names what a test asks for.

    No page throws, writes an error to the console, breaks the policy, asks anybody but the gateway,
    or opens a box of the browser's own.
    """

    def __init__(self) -> None:
        self._homes: set[str] = set()
        self._allowed: list[re.Pattern[str]] = []
        self._noted: list[str] = []

    def see(self, context: BrowserContext, home: str) -> None:
        """Watch a context from now on, whose pages are all at `home`."""
        self._homes.add(urlsplit(home).netloc)
        context.on("console", self._console)
        context.on("weberror", self._thrown)
        context.on("request", self._asked)
        context.on("response", self._answered)
        context.on("dialog", self._dialog)

    def allow(self, *patterns: str) -> None:
        """These faults are what the test is about."""
        self._allowed += [re.compile(pattern) for pattern in patterns]

    @property
    def faults(self) -> list[str]:
        return [
            fault for fault in self._noted if not any(one.search(fault) for one in self._allowed)
        ]

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "assert") or "Content Security Policy" in message.text:
            where = message.location.get("url", "")
            self._noted.append(f"console {message.type}: {message.text} ({where})")

    def _thrown(self, error: WebError) -> None:
        self._noted.append(f"thrown: {error.error}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(_INSIDE) and urlsplit(request.url).netloc not in self._homes:
            self._noted.append(f"elsewhere: {request.method} {request.url}")

    def _answered(self, response: Response) -> None:
        kind = response.headers.get("content-type", "")
        if response.request.resource_type != "document" or "text/html" not in kind:
            return
        policy = response.headers.get("content-security-policy", "")
        if "default-src 'none'" not in policy:
            self._noted.append(f"no policy: {response.url}: {policy!r}")

    def _dialog(self, dialog: Dialog) -> None:
        self._noted.append(f"dialog: {dialog.message}")
        dialog.dismiss()


class Visitor:
    """Somebody with browsers, each with a profile of its own, all of them watched."""

    def __init__(self, chromium: Browser) -> None:
        self._chromium = chromium
        self._contexts: list[BrowserContext] = []
        self.watch = Watch()

    def open(self, home: str, *, width: int = 1280, dark: bool = False) -> Page:
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
    return visitor.open(stage.up.admin)
