"""The pages over a control plane that publishes: what a browser sends, and what it gets."""

import asyncio
import html
import re
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import httpx2
from admin.api.admin_scene import application, parts_of, play
from builders import write_model
from control.publishing import Scene, files

from serve.control.publication.publications import PublicationRequest

from .web_scene import HTMX, PERSON, with_pages

T = TypeVar("T")
ORIGIN = {"origin": "http://localhost:8080"}


class Pages:
    """The site over one control plane. Nothing is published, and replica `a` holds nothing."""

    def __init__(self, folder: Path, **changes: Any) -> None:
        self.scene = Scene(folder)
        self.plane = self.scene.plane
        self.run(self.scene.begin())
        self.app = with_pages(application(self.plane, **parts_of(self.scene), **changes))

    def publish(
        self, *contents: bytes, ask: PublicationRequest | None = None, **more: bytes
    ) -> None:
        """Publish versions of model `m`."""
        for content in contents:
            self.run(self.scene.publish("m", files(content, **more), ask))

    def hold(self, *numbers: int, name: str = "m") -> None:
        """Replica `a` holds these versions."""
        self.plane.fleet.saw("a", {name: numbers})
        self.run(self.plane.publisher.refresh())

    def lay(self, *numbers: int, name: str = "plain") -> Path:
        """A model folder that nobody pushed, and replica `a` holds its versions."""
        folder = write_model(self.plane.repository, name, *numbers)
        self.run(self.plane.inventory.scan())
        self.hold(*numbers, name=name)
        return folder

    def get(self, path: str, **headers: str) -> httpx2.Response:
        """A page."""
        return play(self.app, lambda client: client.get(path, headers=PERSON | headers))

    def post(self, path: str, *, htmx: bool = False, **fields: Any) -> httpx2.Response:
        """A form that was sent."""
        headers = (HTMX if htmx else PERSON) | ORIGIN
        form = {name.replace("__", "-"): str(value) for name, value in fields.items()}
        return play(self.app, lambda client: client.post(path, data=form, headers=headers))

    def api(self, method: str, path: str, body: Any = None) -> Any:
        """What the admin API answers a program."""
        path += "" if method == "GET" else "?wait=0"
        answer = play(self.app, lambda client: client.request(method, path, json=body))
        assert answer.is_success, answer.text
        return answer.json()

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return asyncio.run(wait())


def words(answer: httpx2.Response) -> str:
    """What a person reads on a page, with single spaces."""
    main = answer.text.partition("<main")[2].partition("</main>")[0] or answer.text
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", main)).split())


def hidden(answer: httpx2.Response) -> Mapping[str, str]:
    """The hidden fields of a page's forms, by name; of several, the first."""
    found: dict[str, str] = {}
    for name, value in re.findall(r'type="hidden" name="([^"]*)" value="([^"]*)"', answer.text):
        found.setdefault(name, html.unescape(value))
    return found
