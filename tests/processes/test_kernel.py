"""Memory that was freed goes back to the kernel."""

import subprocess
import sys

PROGRAM = """
from pathlib import Path
from serve.processes.kernel import return_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) >> 8  # MiB

before = resident()
blocks = [b"x" * 100_000 for _ in range(1000)]
last = b"x" * 100_000
large = b"z" * (30 << 20)  # glibc keeps more for itself once it has freed such a block
del large
cycle = [blocks]
cycle.append(cycle)
del blocks, cycle
kept = resident() - before
return_memory()
print(kept, resident() - before)
"""


def test_memory_that_was_freed_or_is_garbage_is_returned_to_the_kernel():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    kept, left = map(int, done.stdout.split())
    assert kept > 80
    assert left < 5
