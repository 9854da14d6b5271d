"""The page *Batching*: what is told, what the form asks for, and how far a change is."""

import html
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import Client, application, client_of
from control.batching import watched
from control.batching.changing_scene import Scene
from control.batching.situations import Sizes
from control.versions_scene import version

from serve.admin.api.serving_configurations import ChangeView
from serve.admin.web.batching_rows import progress

from .pages_scene import ORIGIN, hidden, words
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
Ask = Callable[[Client], Awaitable[httpx2.Response]]


async def read(client: Client) -> httpx2.Response:
    return await client.get(API)


class Pages:
    """The pages over a control plane of two replicas that take changes."""

    def __init__(self, folder: Path) -> None:
        self.scene = Scene(folder, version("m", 1, config=CONFIG), version("m", 2, config=CONFIG))
        self.looks = watched.Scene(self.scene.plane)

    def play(self, *asks: Ask) -> list[httpx2.Response]:
        """One after the other, while the replicas live."""
        parts = {"configuring": self.scene.configuring, "overviews": self.looks.overviews}
        app = with_pages(application(self.scene.plane, **parts))
        client = client_of(app)
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


def fields_of(answer: httpx2.Response) -> Any:
    return answer.json()["fields"]


def looked(pages: Pages, sizes: Sizes, **others: Any) -> None:
    """Replica `a` has counted this."""
    pages.play(get())
    pages.looks.look(sizes, **others)


@pytest.fixture
def pages(tmp_path: Path) -> Pages:
    return Pages(tmp_path)


def test_the_configuration_is_told_in_words_with_what_was_changed(pages: Pages) -> None:
    page, _, changed, missing = pages.play(
        get(),
        put({"max_batch_size": 16}),
        get(),
        get(ONE.replace("/1/", "/9/")),
    )
    said = words(page)
    assert "max_batch_size A batch has up to 8 rows." in said
    assert "Shared with version 2" in said
    assert "changed" not in said.partition("Measurements")[0]
    said = words(changed)
    assert (
        "max_batch_size changed A batch has up to 16 rows. Before: A batch has up to 8 rows" in said
    )
    assert "Last changed by bob" in said and "sooner" in said
    assert missing.status_code == 404


def test_batches_are_drawn_with_their_numbers_and_the_line_through_them(pages: Pages) -> None:
    looked(pages, {1: (3, 5)})
    (page,) = pages.play(get())
    assert "Not enough calls for advice: 3 of 100." in words(page)
    assert "servegate batching tune m@1" in words(page)
    looked(pages, {1: (100, 5), 4: (300, 8)})
    (page,) = pages.play(get())
    said = words(page)
    assert "1 25.0 % 100 5 ms 4 75.0 % 300 8 ms" in said
    assert 'class="fill-a" width="33.33"' in page.text and 'width="100.00"' in page.text
    assert "An execution takes about 4 ms, plus 1 ms per row." in said
    assert "Batch occupancy 41 %" in said


def test_advice_fills_the_form_by_its_link_also_without_scripts(pages: Pages) -> None:
    looked(pages, {1: (1000, 0.2)}, queue=0.1)
    (page,) = pages.play(get())
    assert "servegate batching set m@1 --delay 0us" in words(page)
    (link,) = re.findall(r'href="([^"#]*)#change" data-fill', page.text)
    (filled,) = pages.play(get(html.unescape(link)))
    assert form_of(filled)["delay"] == "" and form_of(page)["delay"] == "100us"
    assert "Queue delay edited" in words(filled)


def test_only_what_was_touched_is_changed(pages: Pages) -> None:
    _, _, after, _, _, off = pages.play(
        *(typed({"delay": "2ms", "reason": "calm"}), over, read),
        *(typed({}, without="dynamic"), over, read),
    )
    assert fields_of(after) == {
        "dynamic_batching": {"max_queue_delay_microseconds": "2000", "preserve_ordering": True}
    }
    assert after.json()["reason"] == "calm"
    assert fields_of(off) == {"dynamic_batching": None}, "its box was not ticked any more"


def test_a_check_shows_what_each_field_would_change_and_changes_nothing(pages: Pages) -> None:
    changes: list[tuple[dict[str, str], str]] = [
        ({"largest": "4"}, "max_batch_size: 4"),
        ({"delay": ""}, "− max_queue_delay_microseconds: 100"),
        ({"preferred": "2,4"}, "+ preferred_batch_size: 2"),
        ({"queue_size": "500"}, "+ max_queue_size: 500"),
        ({"queue_size": "500", "queue_timeout": "50ms"}, "default_timeout_microseconds: 50000"),
        ({"queue_size": "500", "queue_action": "delay"}, "timeout_action: DELAY"),
        ({"instances": "2"}, "+ count: 2"),
        ({"instances": ""}, "− kind: KIND_CPU"),
        ({"cache": "on"}, "+ response_cache {"),
        ({"warmup": "8", "warmup_data": "random"}, "random_data: true"),
        ({"json": '{"max_batch_size": 8}'}, "− dynamic_batching {"),
    ]
    *answers, after = pages.play(*(typed(each, verb="check") for each, _ in changes), read)
    for answer, (changed, line) in zip(answers, changes, strict=True):
        assert line in words(answer), changed
        assert answer.text.lstrip().startswith('<section id="change"')
        kept = {name: text for name, text in changed.items() if name != "json"}
        assert form_of(answer).items() >= kept.items()
    assert fields_of(after) == {}


@pytest.mark.parametrize("htmx", [True, False])
def test_what_is_wrong_is_told_below_what_was_typed(pages: Pages, htmx: bool) -> None:
    changes: list[tuple[dict[str, str], str]] = [
        ({"delay": "5"}, "Queue delay: '5' has no unit"),
        ({"preferred": "x"}, "Preferred batch sizes: 'x' is"),
        ({"preferred": "64"}, "dynamic_batching.preferred_batch_size"),
        ({"instances": "many"}, "Instances: 'many'"),
        ({"json": "{"}, "All fields as JSON: not valid JSON"),
        ({"json": '{"backend": "python"}'}, "backend cannot be changed"),
        ({"watch": "-1", "delay": "1ms"}, "Monitoring time: '-1' is"),
        ({}, "there is nothing to change"),
    ]
    *answers, after = pages.play(*(typed(each, htmx=htmx) for each, _ in changes), read)
    for answer, (changed, said) in zip(answers, changes, strict=True):
        assert said in words(answer) and answer.status_code == (200 if htmx else 422)
        assert form_of(answer).items() >= changed.items()
    assert after.json()["change"] is None


def test_somebody_elses_change_is_told_and_neither_is_lost(pages: Pages) -> None:
    async def again(client: Client) -> httpx2.Response:
        return await post("apply", form_of(told[0]))(client)

    async def stale(client: Client) -> httpx2.Response:
        mine = {"delay": "2ms", "reason": "calm"}
        told.append(await typed(mine, meanwhile=put({"max_batch_size": 4}))(client))
        return told[0]

    told: list[httpx2.Response] = []
    first, before, _, _, after = pages.play(stale, read, again, over, read)
    assert "bob changed the configuration in the meantime: “sooner”" in words(first)
    assert fields_of(before) == {"max_batch_size": 4}
    form = form_of(first)
    assert (form["delay"], form["largest"], form["reason"]) == ("2ms", "4", "calm")
    assert fields_of(after)["max_batch_size"] == 4
    assert fields_of(after)["dynamic_batching"]["max_queue_delay_microseconds"] == "2000"


def test_without_scripts_the_page_comes_back_and_tells_how_far_it_is(pages: Pages) -> None:
    sent, page = pages.play(typed({"largest": "4"}, htmx=False), over)
    assert (sent.status_code, sent.headers["location"]) == (303, ONE)
    assert "Latest change" in words(page) and "Applied" in words(page)
    assert "a: applied" in words(page) and 'hx-trigger="every 1s"' not in page.text


def test_a_change_that_is_taken_back_says_why(pages: Pages) -> None:
    pages.scene.tritons["a"].refuses = {16}
    _, page = pages.play(typed({"largest": "16"}), over)
    assert "Rolled back" in words(page) and "no memory for batches of 16" in words(page)
    assert form_of(page)["largest"] == "8"


def test_progress_is_only_sent_when_it_is_news_and_then_renews_the_form(pages: Pages) -> None:
    async def ask(client: Client) -> httpx2.Response:
        await over(client)
        shown = (await client.get(API)).json()["change"]
        marks.append(progress(ChangeView(**shown)).mark)  # type: ignore[union-attr]
        return await get(f"{ONE}/progress?mark={marks[0]}")(client)

    marks: list[str] = []
    _, same, news = pages.play(typed({"largest": "4"}), ask, get(f"{ONE}/progress?mark=0"))
    assert (same.status_code, same.text) == (204, "")
    assert "Applied" in words(news) and f'hx-post="{ONE}/form"' in news.text


def test_the_measured_part_brings_new_meanings_only_when_there_are_any(pages: Pages) -> None:
    same, _, changed = pages.play(
        get(f"{ONE}/seen?etag=%220%22"), put({"max_batch_size": 4}), get(f"{ONE}/seen?etag=%220%22")
    )
    assert "hx-swap-oob" not in same.text and 'id="change"' not in same.text
    assert "hx-swap-oob" in changed.text and "up to 4 rows" in words(changed)


def test_going_back_is_asked_first_and_brings_what_was_before(pages: Pages) -> None:
    first, nothing, _, _, asked, sent, _, after, *_, own = pages.play(
        *(get(), get(f"{ONE}/back")),
        *(put({"max_batch_size": 4}), put({"max_batch_size": 16}), get(f"{ONE}/back")),
        *(gone_back(f"{ONE}/back", reason="worse"), over, read),
        *(gone_back(f"{ONE}/back?to=own"), over, read),
    )
    assert f'href="{ONE}/back"' not in first.text
    assert nothing.status_code == 422 and "no change to undo" in words(nothing)
    assert "− max_batch_size: 16" in words(asked) and "+ max_batch_size: 4" in words(asked)
    assert (sent.status_code, sent.headers["hx-redirect"]) == (204, ONE)
    assert (fields_of(after), after.json()["reason"]) == ({"max_batch_size": 4}, "worse")
    assert fields_of(own) == {}, "it is as it came"


def test_a_question_that_is_no_longer_about_the_present_goes_nowhere(pages: Pages) -> None:
    _, asked, _, sent, after = pages.play(
        put({"max_batch_size": 4}),
        get(f"{ONE}/back"),
        put({"max_batch_size": 16}),
        post("back", {"if_match": '"1"'}),
        read,
    )
    assert asked.status_code == 200
    assert sent.headers["hx-redirect"] == f"{ONE}?changed=1"
    assert fields_of(after) == {"max_batch_size": 16}


def test_a_form_that_is_renewed_keeps_what_was_typed_and_tells_of_the_news(pages: Pages) -> None:
    mine = typed({"delay": "2ms"}, verb="form", meanwhile=put({"max_batch_size": 4}))
    idle = typed({}, verb="form", meanwhile=put({"max_batch_size": 2}))
    answer, silent = pages.play(mine, idle)
    assert (form_of(answer)["delay"], form_of(answer)["largest"]) == ("2ms", "4")
    assert "bob changed the configuration in the meantime" in words(answer)
    assert form_of(silent)["largest"] == "2" and "in the meantime" not in words(silent)
