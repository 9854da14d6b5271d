"""Writes what each test and each fixture has taken to `.test-durations.jsonl`, for `make slowest`.

One line per phase of a test: its id, the phase (setup, call, teardown), seconds, the seconds of
each fixture that was made in it, and why it has failed.
"""

import json
import os
import time
from collections.abc import Generator
from pathlib import Path
from typing import TextIO

import pytest

FILE = Path(__file__).parent.parent / ".test-durations.jsonl"


class Durations:
    """The plugin of the process that collects the reports: the only one, or xdist's controller."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def pytest_sessionstart(self) -> None:
        # the second pytest of `make test` adds to what the first has written
        is_first = "DURATIONS_APPEND" not in os.environ
        self._file = FILE.open("w" if is_first else "a")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        fixtures = dict(value for name, value in report.user_properties if name == "fixture")
        line = {"test": report.nodeid, "phase": report.when, "seconds": round(report.duration, 3)}
        if report.when == "setup" and fixtures:
            line["fixtures"] = fixtures
        if report.failed:
            line["failed"] = report.longreprtext
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def pytest_sessionfinish(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class FixtureDurations:
    """The plugin of every process that runs tests."""

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        begun = time.perf_counter()
        value = yield
        seconds = time.perf_counter() - begun
        if seconds >= 0.05:
            properties = request._pyfuncitem.user_properties
            properties.append(("fixture", (fixturedef.argname, round(seconds, 3))))
        return value


def register(config: pytest.Config) -> None:
    """Record durations in this process."""
    config.pluginmanager.register(FixtureDurations())
    if not hasattr(config, "workerinput") and not config.option.collectonly:
        config.pluginmanager.register(Durations())
