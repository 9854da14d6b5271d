"""Kill -9 again and again, under load: nothing is executed twice, and everything comes back."""

import os
import random
import signal

import harness
import pytest
from background import Load, assert_executed_once, counted, counting

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

CLIENTS, ROUNDS = 8, 12


def test_random_kills_of_tritons_workers_and_control_never_execute_a_call_twice(tmp_path):
    draw = random.Random(4)
    with counting(tmp_path, workers=2) as (up, log):
        with Load(up.http, counted, CLIENTS) as load:
            for _ in range(ROUNDS):
                load.wait_calls(200)
                victim = draw.choice(["local-0", "local-1", "control", "worker-0", "worker-1"])
                pid = up.children()[victim]
                os.kill(pid, signal.SIGKILL)
                harness.until(lambda: up.children().get(victim, pid) != pid)  # noqa: B023
                harness.until(lambda: whole(up), what="everything is back")
            load.wait_calls(200)
        assert_executed_once(load, log)
    assert len(load.failures) <= CLIENTS * ROUNDS, load.outcomes


def whole(up):
    try:
        replicas, metrics = up.get("/api/replicas"), up.metrics()
    except OSError:
        return False
    workers = [f'servegate_snapshot_generation{{source="worker-{number}"}}' for number in (0, 1)]
    return all(r["state"] == "up" and r["held"] for r in replicas) and all(
        name in metrics for name in workers
    )
