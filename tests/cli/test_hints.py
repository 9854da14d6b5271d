"""`servegate hints show`, `explain`, `set` and `watch`: what people and programs are told."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from admin.api.admin_scene import application, plane
from cli.commands import Done, servegate
from cli.http_servers import Request, answering, serving_app
from control.live.advised import model, told
from workbench.loadtest.fake_sides import side

from serve.capacity.scaling.policy import HELD, borne, enough_for
from serve.capacity.scaling.signals import Bounds, Code, Reason
from serve.cli.hints.arithmetic import Edges, changes, edges, lines
from serve.cli.hints.long_polls import News
from serve.cli.hints.long_polls import line as line_of
from serve.cli.hints.view import allowed, number

READ = {"utilization": 0.83, "memory_used": 4.1e9, "memory_total": 8e9, "power": 250.0}
GPU = {"local-0/GPU-1": READ | {"source": "triton"}}


def page(**about: Any) -> dict[str, Any]:
    """As the admin API tells it."""
    return told(**about).to_json()


def answers(*pages: dict[str, Any]) -> dict[str, Any]:
    return {
        "/api/hints": {"hints": list(pages)},
        **{f"/api/hints/{one['pool']}": one for one in pages},
    }


# --- show ----------------------------------------------------------------------------------------


def test_every_pool_is_a_row_with_its_first_reason() -> None:
    with side(**answers(page(), page(pool="t4", desired=2, confidence="low"))) as there:
        done = servegate("hints", "show", "--admin-url", there.url)
    head, *rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert head == ["pool", "desired", "ready", "starting", "demand", "bounds", "why"]
    why = "2.31 replicas would be busy all the time  [demand]"
    assert rows == [
        ["default", "3", "2", "0", "2.31", "1 to 8", why],
        ["t4", "2 (low confidence)", "2", "0", "2.31", "1 to 8", why],
    ]
    with side(**answers()) as there:
        done = servegate("hints", "show", "--admin-url", there.url)
    assert (done.returncode, done.stdout) == (0, "")
    assert "no hints yet" in done.stderr


def test_one_pool_is_told_in_words_and_to_programs_as_it_is() -> None:
    with side(**answers(page(confidence="low"))) as there:
        flags = ("--admin-url", there.url)
        done = servegate("hints", "show", "default", *flags)
        one = servegate("hints", "show", "default", "--json", *flags)
        every = servegate("hints", "show", "--json", *flags)
    assert done.stdout.splitlines() == [
        "default: 3 replicas, 1 more than now",
        "  2 ready, 0 starting; bounds 1 to 8; as of 2023-11-14 22:13:20Z",
        "  low confidence: the readings are incomplete",
        "  why: 2.31 replicas would be busy all the time  [demand]",
    ]
    assert json.loads(every.stdout) == [json.loads(one.stdout)] == [page(confidence="low")]
    bounds = Bounds(least=1, most=9, budget=6, to_zero=True)
    found = page(bounds=bounds, schedule="mon-fri 08:00-18:00")["bounds"]
    assert allowed(found) == "0 or 1 to 9, GPUs for 6 (mon-fri 08:00-18:00)"


def calls(demand: float, edge: float) -> str:
    """How many calls of digits lie between a demand and one at which the number is another."""
    return f"{number(131 * abs(edge - demand))} calls/s"


# --- explain -------------------------------------------------------------------------------------


def test_the_arithmetic_is_told_from_calls_to_replicas() -> None:
    full = enough_for(2.31)
    assert list(lines(page(utilization=0.83, gpus=GPU))) == [
        "default: 3 replicas, 1 more than now",
        "  2 ready, 0 starting; bounds 1 to 8; as of 2023-11-14 22:13:20Z",
        "  why: 2.31 replicas would be busy all the time  [demand]",
        "",
        "readings:",
        "  digits: 290 calls/s in the last 15 s, 300 in the last 5 s, 12 waiting; loaded on 2 of 2 "
        "replicas",
        "    0.4 % of the calls exceeded 50 ms (allowed: 1 %); queue time is 0.3 times the compute "
        "time; batches are 43 % full",
        "  GPUs: utilisation 83 %, used only as evidence",
        "    local-0/GPU-1: utilisation 83 %, 4.1 of 8 GB, 250 W (triton)",
        "  a cold start takes 41 s",
        "",
        "demand, in fully busy replicas:",
        "  digits: 290 calls/s ÷ 131 per replica = 2.21",
        "    + 0.096 for a rise in the last 5 s, 12 waiting calls, random variation or slow "
        "calls = 2.31",
        "replicas:",
        f"  2.31 plus spare capacity: {full} replicas, each busy {231 / full:.0f} % of the time",
        "  2 ready + 0 starting = 2 existing",
        "  bounds 1 to 8: 3 desired",
        "",
        "what would change the hint:",
        f"  more replicas: demand above {borne(3):.3g} ({calls(2.31, borne(3))} more of digits)",
        f"  fewer replicas: demand below {borne(2):.3g} ({calls(2.31, borne(2))} fewer of digits)",
    ]


def test_what_differs_from_the_usual_is_told() -> None:
    reasons = (
        Reason(Code.UNKNOWN, "not enough executions yet to measure the capacity for digits"),
    )
    unknown = page(models=(model(capacity=None),), reasons=reasons, demand=float("nan"))
    newer = page()
    newer["reasons"].append({"code": "new", "text": "of a later version"})
    for told_, line in (
        (page(), "  GPUs: utilisation unknown; the hint does not need it"),
        (page(models=(model(), model("other", capacity=400.0))), "  total: 2.31"),
        (unknown, "  digits: the capacity of a replica is not known yet"),
        (unknown, "  total: unknown, so the number stays as it is"),
        (page(demand=2.1), "    − 0.11, because the rate is smoothed = 2.1"),
        (newer, "  why: of a later version  [new]"),
    ):
        assert line in list(lines(told_)), line


def test_the_edges_are_where_the_number_would_be_another() -> None:
    most = Reason(Code.MOST, "9 are needed, but the limit is 8")
    full = page(desired=8, ready=8, demand=7.5, reasons=(most,))
    assert edges(full).more is None
    assert "most: change the bound with servegate hints set default --most N" in list(changes(full))
    assert edges(page(desired=1, ready=1)).fewer is None
    followed = page(desired=2, ready=2, demand=1.5)
    assert edges(followed) == Edges(borne(2), borne(1), fewer_at_once=False)
    assert (
        f"fewer replicas: demand below {borne(1):.3g} ({calls(1.5, borne(1))} fewer of digits) for "
        f"{HELD:.0f} s, unless more were needed repeatedly in the last hour"
    ) in list(changes(followed))
    assert list(changes(page(desired=2, ready=2, demand=0.5)))[1].startswith(
        f"fewer replicas: when demand was below {borne(1):.3g} for {HELD:.0f} s"
    )


def test_explaining_for_programs_has_the_parts_and_the_edges() -> None:
    with side(**answers(page())) as there:
        done = servegate("hints", "explain", "default", "--json", "--admin-url", there.url)
    found = json.loads(done.stdout)
    assert found["hint"] == page()
    assert found["parts"][0]["model"] == "digits"
    assert found["edges"] == {"more": borne(3), "fewer": borne(2), "fewer_at_once": True}


def test_every_reason_but_those_that_are_the_rule_says_what_would_change_it() -> None:
    for code in set(Code) - {Code.DEMAND, Code.STEADY}:
        found = page(reasons=(Reason(code, "so it is"),))
        assert any(one.startswith(f"{code}: ") for one in changes(found)), code


# --- set -----------------------------------------------------------------------------------------


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An admin API with one pool, `default`, of which nothing is set."""
    app = application(plane(tmp_path))
    with serving_app(app) as url:
        yield url


def set_it(url: str, *words: str) -> Done:
    return servegate("hints", "set", *words, "--admin-url", url)


def stored(url: str, pool: str = "default") -> dict[str, Any]:
    found: dict[str, Any] = httpx2.get(f"{url}/api/pools/{pool}", trust_env=False).json()
    return found


def test_what_is_named_is_set_and_all_else_stays(url: str) -> None:
    assert set_it(url, "default", "--least", "2", "--most", "9").returncode == 0
    done = set_it(url, "default", "--gpu-budget", "6", "--cost", "0.5", "--to-zero")
    assert done.returncode == 0
    numbers = {"least": 2, "most": 9, "budget": 6, "cost": 0.5}
    rest = {"to_zero": True, "group": "", "schedules": []}
    assert stored(url)["settings"] == numbers | rest
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "updated pool default; active on every worker (generation 1)",
        "bounds now: 0 to 9 replicas, GPUs for 6",
    ]
    etag = stored(url)["etag"]
    done = set_it(url, "default", "--least", "2")
    assert (done.returncode, stored(url)["etag"]) == (0, etag)
    assert "pool default already has these settings" in done.stderr
    done = set_it(url, "default", "--gpu-budget", "", "--reason", "a campaign", "--json")
    page = json.loads(done.stdout)
    assert (page["pool"], page["bounds"]["budget"], page["set"]) == ("default", None, True)
    line, *_ = httpx2.get(f"{url}/api/history", trust_env=False).json()
    assert (line["reason"], line["kind"], line["key"]) == ("a campaign", "pool", "default")
    assert set_it(url, "default", "--clear").returncode == 0
    assert stored(url)["set"] is False


def test_schedules_are_replaced_together_and_an_empty_one_removes_them(url: str) -> None:
    texts = ["mon-fri 08:00-18:00 Europe/Berlin least=4", "00:00-24:00 least=2"]
    done = set_it(url, "default", "--schedule", texts[0], "--schedule", texts[1])
    assert "schedule 'mon-sun 00:00-24:00 UTC least=2'" in done.stderr
    assert [one["least"] for one in stored(url)["settings"]["schedules"]] == [4, 2]
    set_it(url, "default", "--schedule", texts[0])
    assert [one["zone"] for one in stored(url)["settings"]["schedules"]] == ["Europe/Berlin"]
    set_it(url, "default", "--schedule", "")
    assert stored(url)["settings"]["schedules"] == []


def test_a_pool_without_replicas_can_be_set_and_that_is_said(url: str) -> None:
    done = set_it(url, "l4", "--group", "vision", "--to-zero")
    assert done.returncode == 0 and "pool l4 has no replicas" in done.stderr
    done = set_it(url, "default", "--group", "vision")
    assert "pools of the group: default, l4" in done.stderr


def test_what_cannot_be_is_refused_before_anything_changes(url: str) -> None:
    for words, said in (
        ([], "no setting was specified"),
        (["--clear", "--least", "2"], "--clear cannot be combined with other settings"),
        (["--gpu-budget", "many"], "--gpu-budget cannot be 'many'"),
        (["--schedule", "mon-fri least=4"], "why: the hours FROM-TO are missing"),
        (["--least", "9"], "'least' is above 'most'"),
    ):
        done = set_it(url, "default", *words)
        assert done.returncode == 2, done
        assert said in done.stderr and "Traceback" not in done.stderr
        assert stored(url)["set"] is False
    done = set_it(url, "h100", "--clear")
    assert done.returncode != 0 and "there is no pool 'h100'" in done.stderr


# --- watch ---------------------------------------------------------------------------------------


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
    assert line_of(page(starting=1, confidence="low")) == (
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
    assert done.stdout.splitlines() == [line_of(first), line_of(second)]
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
