"""Kill -9 again and again, under load: nothing is executed twice, and everything comes back."""

import json
import os
import random
import signal

import harness
import pytest
import repositories
from background import Load

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

CLIENTS, ROUNDS = 8, 12


def body(number, count):
    name = f"c{number}-{count}"
    return "/v2/models/counting/infer", json.dumps(repositories.request(name)), name


def test_random_kills_of_tritons_workers_and_control_never_execute_a_call_twice(tmp_path):
    log = tmp_path / "executed"
    log.touch()
    models = tmp_path / "models"
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    draw = random.Random(4)
    flags = ("--model-repo", str(models), "--replicas", "2", "--workers", "2")
    with harness.up(tmp_path / "state", *flags) as up:
        with Load(up.http, body, CLIENTS) as load:
            for _ in range(ROUNDS):
                load.wait_calls(200)
                victim = draw.choice(["local-0", "local-1", "control", "worker-0", "worker-1"])
                pid = up.children()[victim]
                os.kill(pid, signal.SIGKILL)
                harness.until(lambda: up.children().get(victim, pid) != pid)  # noqa: B023
                harness.until(lambda: whole(up), what="everything is back")
            load.wait_calls(200)
        executed = log.read_text().split()
    assert len(executed) == len(set(executed)), "a call was executed twice"
    assert set(load.answered) <= set(executed)
    assert len(load.failures) <= CLIENTS * ROUNDS, load.outcomes


def whole(up):
    """Every replica holds the model, and both workers answer."""
    try:
        replicas, metrics = up.get("/api/replicas"), up.metrics()
    except OSError:
        return False
    workers = [f'servegate_snapshot_generation{{source="worker-{number}"}}' for number in (0, 1)]
    return all(r["state"] == "up" and r["held"] for r in replicas) and all(
        name in metrics for name in workers
    )
