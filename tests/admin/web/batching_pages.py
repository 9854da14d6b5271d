"""The page *Batching* over a control plane of two replicas that take changes, and its form."""

import html
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
from admin.api.admin_scene import application
from control.batching import watched
from control.batching.changing_scene import Scene
from control.batching.situations import Sizes
from control.versions_scene import version

from .pages_scene import ORIGIN, hidden
from .web_scene import HTMX, PERSON, with_pages

ONE = "/models/m/versions/1/batching"
API = "/api/models/m/versions/1/serving-configuration"
CONFIG = """
backend: "onnxruntime"
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: 4 }
dynamic_batching { max_queue_delay_microseconds: 100 preserve_ordering: true }
instance_group { count: 1 kind: KIND_CPU }
"""
Client = httpx2.AsyncClient
Ask = Callable[[Client], Awaitable[httpx2.Response]]


class Pages:
    """The pages over a control plane of two replicas that take changes."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder, version("m", 1, config=CONFIG), version("m", 2, config=CONFIG))
        self.looks = watched.Scene(self.scene.plane)

    def play(self, *asks: Ask) -> list[httpx2.Response]:
        """One after the other, while the replicas live."""
        parts = {"configuring": self.scene.configuring, "overviews": self.looks.overviews}
        app = with_pages(application(self.scene.plane, **parts))
        transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
        client = Client(transport=transport, base_url="http://localhost:8080")
        return self.scene.play(*(lambda ask=ask: ask(client) for ask in asks))


def get(path: str = ONE, **headers: str) -> Ask:
    return lambda client: client.get(path, headers=PERSON | headers)


def post(verb: str, form: dict[str, str], *, htmx: bool = True) -> Ask:
    headers = (HTMX if htmx else PERSON) | ORIGIN
    return lambda client: client.post(f"{ONE}/{verb}", data=form, headers=headers)


def put(fields: dict[str, Any]) -> Ask:
    """Somebody else changes it, to the end."""
    named = {"servegate-author": "bob", "servegate-reason": "sooner"}
    return lambda client: client.put(API, json={"fields": fields}, headers=named)


def typed(
    changed: dict[str, str],
    *,
    verb: str = "apply",
    htmx: bool = True,
    without: str = "",
    meanwhile: Ask | None = None,
) -> Ask:
    """Somebody opens the page, changes these fields, and sends the form."""

    async def ask(client: Client) -> httpx2.Response:
        page = await client.get(ONE, headers=PERSON)
        if meanwhile is not None:
            await meanwhile(client)
        form = form_of(page) | changed
        form.pop(without, None)
        return await post(verb, form, htmx=htmx)(client)

    return ask


def gone_back(path: str, **more: str) -> Ask:
    """Somebody reads the question and says yes."""

    async def ask(client: Client) -> httpx2.Response:
        asked = await client.get(path, headers=PERSON)
        return await post("back", dict(hidden(asked)) | more)(client)

    return ask


async def over(client: Client) -> httpx2.Response:
    """Wait for the end of a change; gives the page."""
    while not (await client.get(API)).json()["change"]["outcome"]:
        pass
    return await client.get(ONE, headers=PERSON)


def form_of(page: httpx2.Response) -> dict[str, str]:
    """What a browser would send of the form as it is."""
    form = dict(hidden(page))
    part = page.text.partition('id="change-form"')[2].partition("</form>")[0]
    for tag in re.findall(r"<input [^>]*>", part):
        found = dict(re.findall(r'([a-z_]+)="([^"]*)"', tag))
        if found.get("type") == "hidden" or (found.get("type") == "checkbox") > (" checked" in tag):
            continue
        form[found["name"]] = html.unescape(found.get("value", ""))
    for name, body in re.findall(r'<select [^>]*name="([a-z_]+)">(.*?)</select>', part):
        form[name] = re.findall(r'value="([a-z]+)" selected', body)[0]
    text = re.search(r"<textarea [^>]*>\n(.*?)</textarea>", part, re.DOTALL)
    assert text is not None
    form["json"] = html.unescape(text[1]).replace("\n", "\r\n")
    return form


def fields_of(answer: httpx2.Response) -> dict[str, Any]:
    found: dict[str, Any] = answer.json()["fields"]
    return found


def looked(pages: Pages, sizes: Sizes, **others: Any) -> None:
    """Replica `a` has counted this."""
    pages.play(get())
    pages.looks.look(sizes, **others)


def read(client: Client) -> Awaitable[httpx2.Response]:
    return client.get(API)
