"""What a page costs at its first visit: what it is made of, not the pictures and data it shows."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from playwright.sync_api import Page, Request

_PARTS = frozenset({"document", "stylesheet", "script", "font"})
MOST_BYTES = 150_000  # uncompressed
MOST_REQUESTS = 10


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes, uncompressed, by path; a page in a frame counts."""

    parts: dict[str, int]

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    def faults(self) -> list[str]:
        """What is too much."""
        told = ", ".join(f"{path} {size}" for path, size in self.parts.items())
        too_large = [f"{self.size} bytes: {told}"] if self.size > MOST_BYTES else []
        too_many = (
            [f"{len(self.parts)} requests: {told}"] if len(self.parts) > MOST_REQUESTS else []
        )
        return too_large + too_many


def visit(page: Page, url: str) -> Cost:
    """Open a page with an empty cache."""
    asked: list[Request] = []

    def note(request: Request) -> None:
        asked.append(request)

    page.on("request", note)
    page.goto(url)
    page.wait_for_load_state("load")
    page.remove_listener("request", note)
    parts = [one for one in asked if one.resource_type in _PARTS or "/static/" in one.url]
    answers = [(one.url, one.response()) for one in parts]
    return Cost(
        {
            urlsplit(url).path: len(answer.body())
            for url, answer in answers
            if answer is not None and answer.status < 300
        }
    )
