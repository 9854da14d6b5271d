"""Tells coverage which test runs, for `make coverage`: in this process, and in those it starts.

A process that serves many tests counts for the one that has started it.
"""

import os
from collections.abc import Generator

import pytest
from coverage import Coverage


class Contexts:
    """The plugin of every process that runs tests."""

    def __init__(self, coverage: Coverage) -> None:
        self._coverage = coverage

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        self._coverage.switch_context(item.nodeid)
        self._coverage.config.context = item.nodeid
        os.environ["COVERAGE_PROCESS_CONFIG"] = self._coverage.config.serialize()
        return (yield)


def register(config: pytest.Config) -> None:
    """Name the tests where `coverage run` has started this process or its parent."""
    if (running := Coverage.current()) is not None:
        config.pluginmanager.register(Contexts(running))
