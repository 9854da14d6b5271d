"""A Triton that is stopped under load: its calls end, others go on, and it is called again."""

import os
import signal

import pytest
from background import Load, assert_executed_once, counted, counting

pytestmark = [pytest.mark.triton, pytest.mark.chaos]

CLIENTS = 8


def test_calls_on_a_triton_that_hangs_end_and_it_is_called_again_once_it_answers(tmp_path):
    with counting(tmp_path) as (up, log):
        with Load(up.http, counted, CLIENTS) as load:
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
        assert_executed_once(load, log)
    assert 0 < len(load.failures) <= CLIENTS, load.outcomes
    assert {status for _, status, _ in load.failures} == {502}, load.failures
    assert all("answered no health probe" in text for _, _, text in load.failures)
