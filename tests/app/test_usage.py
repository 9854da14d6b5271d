"""What a process uses, as the kernel tells it."""

import os
import subprocess
import sys
import time

from serve.app.metrics import Usage, families


def test_the_usage_of_this_process_is_what_python_says_of_it() -> None:
    before = time.process_time()
    usage = Usage.of(os.getpid())
    assert usage is not None
    assert abs(usage.cpu_seconds - before) < 0.2
    assert 5 << 20 < usage.resident < 5 << 30
    assert usage.proportional is not None and 0 < usage.proportional <= usage.resident * 1.1
    assert usage.open_files >= 3
    assert time.time() - 24 * 3600 < usage.started <= time.time() + 1
    with open(os.devnull):  # noqa: PTH123
        after = Usage.of(os.getpid())
    assert after is not None and after.open_files == usage.open_files + 1


def test_every_number_is_kept_apart_by_its_source() -> None:
    mine = os.getpid()
    found = families({"worker-0": mine, "worker-1": mine})
    for family in found:
        assert [sample.labels for sample in family.samples] == [
            {"source": "worker-0"},
            {"source": "worker-1"},
        ]
    assert [family.name for family in found if family.type == "counter"] == [
        "servegate_process_cpu_seconds"
    ]


def test_a_process_that_is_gone_uses_nothing_and_is_left_out() -> None:
    process = subprocess.Popen((sys.executable, "-c", ""))
    process.wait()
    assert Usage.of(process.pid) is None
    assert not any(family.samples for family in families({"worker-0": process.pid}))
