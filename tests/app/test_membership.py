"""Calls in flight by replica, as the gateway's metrics tell them to the control plane."""

import asyncio
from typing import Any

import pytest

from serve.app.membership import calls_in_flight
from serve.core.errors import Unavailable

TOLD = """
# HELP servegate_calls_in_flight Calls in flight
servegate_calls_in_flight{source="worker-0"} 3.0
servegate_calls_in_flight{source="worker-1"} 1.0
servegate_replica_calls_in_flight{pool="default",replica="a",source="worker-0"} 2.0
servegate_replica_calls_in_flight{pool="",replica="b",source="worker-0"} 1.0
servegate_replica_calls_in_flight{pool="default",replica="b",source="worker-1"} 1.0
"""


class Gateway:
    """Tells this text, or nothing."""

    def __init__(self, text: str | None) -> None:
        self._text = text

    async def metrics(self) -> str:
        if self._text is None:
            raise Unavailable("the gateway does not answer")
        return self._text


def told(text: str | None) -> Any:
    return asyncio.run(calls_in_flight(Gateway(text)))


def test_all_workers_count_also_for_a_replica_that_some_of_them_know_no_more() -> None:
    assert told(TOLD) == {"a": 2.0, "b": 2.0}


@pytest.mark.parametrize("text", [None, "", "# no worker has answered\n", "<html>"])
def test_where_no_worker_tells_nothing_is_known(text: str | None) -> None:
    assert told(text) is None
