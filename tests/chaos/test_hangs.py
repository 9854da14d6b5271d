"""A Triton that is stopped under load: its calls end, others go on, and it is called again."""

import json
import os
import signal

import harness
import pytest
import repositories
from background import Load

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

CLIENTS = 8


def body(number, count):
    name = f"c{number}-{count}"
    return "/v2/models/counting/infer", json.dumps(repositories.request(name)), name


def test_calls_on_a_triton_that_hangs_end_and_it_is_called_again_once_it_answers(tmp_path):
    log = tmp_path / "executed"
    log.touch()
    models = tmp_path / "models"
    repositories.python_model(models, "counting", repositories.COUNTING.format(log=str(log)))
    flags = ("--model-repo", str(models), "--replicas", "2", "--workers", "1")
    with harness.up(tmp_path / "state", *flags) as up:
        with Load(up.http, body, CLIENTS) as load:
            load.wait_calls(200)
            stopped = up.children()["local-0"]
            os.kill(stopped, signal.SIGSTOP)
            try:
                up.program.wait_line("replica local-0 hangs")
                load.wait_calls(200)
            finally:
                os.kill(stopped, signal.SIGCONT)
            up.program.wait_line("replica local-0 responds again")
            load.wait_calls(200)
        executed = log.read_text().split()
    assert 0 < len(load.failures) <= CLIENTS, load.outcomes
    assert {status for _, status, _ in load.failures} == {502}, load.failures
    assert all("answered no health probe" in text for _, _, text in load.failures)
    assert len(executed) == len(set(executed)), "a call was executed twice"
    assert set(load.answered) <= set(executed)
