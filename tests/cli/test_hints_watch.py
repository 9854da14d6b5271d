"""`servegate hints watch`: each change once, as soon as the gateway tells it."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cli.commands import servegate
from cli.http_servers import Request, answering
from control.live.advised import told

from serve.capacity.scaling.signals import Code, Reason
from serve.cli.hints.long_polls import News, line


def page(**about: Any) -> dict[str, Any]:
    return told(**about).to_json()


def news(told_: News, *pages: dict[str, Any]) -> list[tuple[str, bool]]:
    """Who has news, and whether there still is a hint."""
    return [(name, hint is not None) for name, hint in told_.of(pages)]


def test_only_what_differs_is_news() -> None:
    told_ = News()
    assert news(told_, page(), page(pool="t4")) == [("default", True), ("t4", True)]
    other_words = (Reason(Code.DEMAND, "2.4 replicas would be busy all the time"),)
    assert news(told_, page(reasons=other_words, demand=2.4), page(pool="t4")) == []
    assert news(told_, page(desired=4), page(pool="t4")) == [("default", True)]
    assert [news(told_, page(desired=4)) for _ in range(2)] == [[("t4", False)], []]
    assert news(News("t4"), page(), page(pool="t4")) == [("t4", True)]


def test_a_hint_is_one_line() -> None:
    assert line(page(starting=1, confidence="low")) == (
        "2023-11-14 22:13:20Z  default  3 desired (low confidence), 2 ready, 1 starting, "
        "demand 2.31: 2.31 replicas would be busy all the time  [demand]"
    )


@contextmanager
def rounds(*rounds_: list[dict[str, Any]], waits: bool = False) -> Iterator[tuple[str, list[int]]]:
    """A gateway that tells these rounds one after the other; then it refuses, or lets people wait.

    Its first round has number 7. `asked` is what was asked for: the number after which.
    """
    over = threading.Event()
    left, asked = list(rounds_), []

    def answer(request: Request) -> tuple[int, Any]:
        url = urlsplit(request.path)
        if url.path != "/api/hints":
            return 200, rounds_[0][0]
        asked.append(int(parse_qs(url.query)["after"][0]))
        if left:
            return 200, {"number": len(rounds_) - len(left) + 7, "hints": left.pop(0)}
        if waits:
            over.wait()
        return 403, {"what": "no more", "why": "", "try_this": "", "code": "forbidden"}

    with answering(answer) as url:
        yield url, asked
        over.set()


def test_people_get_a_line_for_each_change() -> None:
    first, second = page(), page(desired=4)
    with rounds([first], [first], [second]) as (url, asked):
        done = servegate("hints", "watch", "--admin-url", url)
    assert asked == [0, 7, 8, 9], "each question is for what is newer than the last answer"
    assert done.stdout.splitlines() == [line(first), line(second)]
    assert "no more" in done.stderr


def test_programs_get_an_event_for_each_change_and_a_result() -> None:
    with rounds([page()], [page(desired=4)], [page(pool="t4")]) as (url, _):
        done = servegate("hints", "watch", "default", "--json", "--admin-url", url)
    found = [json.loads(text) for text in done.stdout.splitlines()]
    assert [(one["type"], one.get("pool")) for one in found] == [
        ("hint", "default"),
        ("hint", "default"),
        ("gone", "default"),
        ("result", None),
    ]
    assert [one["hint"]["desired"] for one in found[:2]] == [3, 4]
    assert (done.returncode, found[-1]["code"]) == (4, "forbidden")


def test_it_ends_by_itself_after_the_time_it_was_given() -> None:
    with rounds([page()], waits=True) as (url, _):
        done = servegate("hints", "watch", "--for", "100ms", "--json", "--admin-url", url)
    assert done.returncode == 0
    assert json.loads(done.stdout.splitlines()[-1]) == {"type": "result", "ok": True, "exit": 0}
    done = servegate("hints", "watch", "--for", "soon", "--admin-url", "http://127.0.0.1:9")
    assert done.returncode == 2 and "'soon' is not a duration" in done.stderr
