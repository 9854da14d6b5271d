"""Open files: the soft limit is raised at the start, and one that is too low is named."""

import subprocess
import sys

import pytest

from serve.app.open_files import LEAST

START = """
import resource, sys
from serve.app.open_files import allow_open_files
from serve.core.errors import CannotStart
from serve.settings import Settings

soft, hard, connections, data = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
try:
    print(allow_open_files(Settings(max_connections=connections, max_in_flight=100), data=data))
except CannotStart as error:
    print(error)
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


def start(soft: int, hard: int, *, connections: int = 1000, data: bool = True) -> tuple[str, int]:
    """What a process says that starts under these limits, and its soft limit then."""
    words = [str(word) for word in (soft, hard, connections, int(data))]
    done = subprocess.run(
        [sys.executable, "-c", START, *words], capture_output=True, text=True, check=True
    )
    said, limit = done.stdout.splitlines()
    return said, int(limit)


def test_the_soft_limit_is_raised_to_what_the_settings_need() -> None:
    assert start(64, 4000) == ("", 2200)


def test_a_limit_that_is_higher_stays() -> None:
    assert start(3000, 4000) == ("", 3000)


def test_a_hard_limit_below_that_is_a_warning_with_the_number_that_is_needed() -> None:
    said, limit = start(64, 500)
    assert limit == 500
    assert said.startswith("warning: a process may open only 500 files here (ulimit -n). ")
    assert "needs 2200 for max_connections = 1000" in said


def test_a_control_plane_alone_needs_few() -> None:
    assert start(64, 500, data=False) == ("", LEAST)


@pytest.mark.parametrize("data", [True, False])
def test_too_few_to_work_at_all_are_refused_with_the_number_that_is_needed(data: bool) -> None:
    said, _ = start(64, 64, data=data)
    wanted = 2200 if data else LEAST
    assert said.startswith("a process may open only 64 files here (ulimit -n): it needs 256")
    assert f"ulimit -n {wanted} before the start" in said
