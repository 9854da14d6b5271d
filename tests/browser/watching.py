"""A watch over a browser: what no page may do, whatever a test does with it.

No page throws, writes an error to the console, breaks the policy, asks anybody but the gateway, or
opens a box of the browser's own.
"""

import re
from urllib.parse import urlsplit

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Request, Response, WebError

_INSIDE = ("data:", "blob:", "about:")


class Watch:
    """Notes what pages do wrong in the contexts it sees; `allow` names what a test asks for."""

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
        """What was noted, but for what is allowed."""
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
