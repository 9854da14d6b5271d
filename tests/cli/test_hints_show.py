"""`servegate hints show` and `explain`: what people read of a hint."""

import json
from typing import Any

from cli.commands import servegate
from control.live.advised import model, told
from workbench.loadtest.fake_sides import side

from serve.capacity.scaling.policy import HELD, borne, enough_for
from serve.capacity.scaling.signals import Bounds, Code, Reason
from serve.cli.hints.arithmetic import Edges, changes, edges, lines
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
