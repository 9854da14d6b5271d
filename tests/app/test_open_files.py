"""Open files: the soft limit is raised at the start, and one that is too low is named."""

import subprocess
import sys

from serve.app.open_files import LEAST

START = """
import os, resource, sys
from serve.app.open_files import allow_open_files
from serve.core.errors import CannotStart
from serve.settings import Settings

for case in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    soft, hard, data = map(int, case.split())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        said = allow_open_files(Settings(max_connections=1000, max_in_flight=100), data=bool(data))
    except CannotStart as error:
        said = error
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], said, sep="|", flush=True)
    os._exit(0)
"""
FEW = "the limit of open files (ulimit -n) is only 64: a process needs at least 256"
LESS = "warning: the limit of open files (ulimit -n) is only 500. "
CASES = {  # the soft and the hard limit, and whether it is a data plane: the soft limit then
    "64 4000 1": (2200, ()),
    "3000 4000 1": (3000, ()),
    "64 500 1": (500, (LESS, "needs 2200 for max_connections = 1000")),
    "64 500 0": (LEAST, ()),
    "64 64 1": (64, (FEW, "ulimit -n 2200 before the start")),
    "64 64 0": (64, (FEW, f"ulimit -n {LEAST} before the start")),
}


def test_the_soft_limit_is_raised_as_far_as_is_needed_and_a_hard_one_below_that_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, *CASES], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    for line, (case, (limit, words)) in zip(lines, CASES.items(), strict=True):
        found, _, said = line.partition("|")
        assert int(found) == limit, case
        assert bool(said) == bool(words) and all(one in said for one in words), (case, said)
