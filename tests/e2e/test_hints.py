"""Hints of a real gateway with a real Triton: calls go in, a learned capacity comes out."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from harness import Up, request, until, up

pytestmark = [pytest.mark.triton, pytest.mark.slow]

ROW = [0.0] * 64


def call(one: Up, rows: int) -> None:
    tensor = {"name": "x", "datatype": "FP32", "shape": [rows, 8, 8, 1], "data": ROW * rows}
    url = f"http://{one.http}/v2/models/digits/versions/2/infer"
    status, answer = request(url, "POST", {"inputs": [tensor]})
    assert status == 200, answer


def model(one: Up) -> dict[str, Any] | None:
    """What is told of the digits, once somebody has called them."""
    hints = one.get("/api/hints")["hints"]
    found = [each for hint in hints for each in hint["models"] if each["name"] == "digits"]
    return found[0] if found else None


def test_a_hint_appears_with_a_capacity_that_was_learned_from_calls(seeded: Up) -> None:
    def learned() -> bool:
        for rows in (1, 1, 3, 8):
            call(seeded, rows)
        seen = model(seeded)
        return seen is not None and bool(seen["capacity"])

    until(learned, what="a capacity")
    hint = seeded.get("/api/hints/default")
    assert (hint["ready"], hint["starting"], hint["desired"]) == (1, 0, 1)
    assert hint["models"][0]["holding"] == 1
    assert hint["models"][0]["lately"] > 0


def test_who_waits_for_the_next_round_is_told_of_it(seeded: Up) -> None:
    number = until(lambda: seeded.get("/api/hints")["number"], what="a first round")
    later = seeded.get(f"/api/hints?after={number}")
    assert later["number"] > number


def test_hints_are_numbers_for_prometheus(seeded: Up) -> None:
    until(lambda: "servegate_desired_replicas{" in seeded.metrics(), what="a hint in the metrics")
    text = seeded.metrics()
    assert "servegate_ready_replicas{" in text
    assert "servegate_hint_reason{" in text
    assert "servegate_model_calls_in_flight{" in text


def test_a_pool_that_is_not_there_has_no_hint(seeded: Up) -> None:
    until(lambda: seeded.get("/api/hints")["number"], what="a first round")
    status, answer = request(f"{seeded.admin}/api/hints/elsewhere")
    assert (status, answer["code"]) == (404, "not_found")


def test_a_control_plane_that_starts_anew_holds_what_there_is(tmp_path: Path) -> None:
    with up(tmp_path, "--replicas", "1", "--workers", "1") as one:
        one.put("/api/pools/default", {"least": 1, "most": 4})
        until(lambda: ready(one) == 1, what="a replica that is ready")
        before = one.children()["control"]
        os.kill(before, signal.SIGKILL)
        until(lambda: one.children().get("control", before) != before, what="another process")
        until(lambda: ready(one) == 1, what="the replica is known again")
        hint = one.get("/api/hints/default")
    assert (hint["desired"], hint["confidence"]) == (1, "low")
    assert [reason["code"] for reason in hint["reasons"]] == ["restarted"]


def ready(one: Up) -> int:
    """Replicas that are ready by the newest hint; 0 while nobody tells."""
    try:
        status, answer = request(f"{one.admin}/api/hints/default")
    except OSError:
        return 0
    return int(answer["ready"]) if status == 200 else 0
