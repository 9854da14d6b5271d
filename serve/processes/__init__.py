"""Child processes that never outlive their parent.

Four defences, from the fastest to the last:

1. A child stands in a session and process group of its own; stopping it, or its own death, ends
   the whole group (`children.py`).
2. The kernel kills the child when the parent dies, however it dies (`PR_SET_PDEATHSIG`).
3. A file remembers the children, so that the next start can end what a killed parent left behind:
   grandchildren do not inherit the second defence (`ledger.py`).
4. A lock on the state folder keeps two parents apart, so that nobody sweeps away the children of a
   parent that lives (`ledger.py`).

`supervised.py` keeps one program running; `forked.py` keeps forked children running; `family.py`
tells how much memory a child and its own children take.
"""

from serve.processes.children import Child, Exit, Program, spawn
from serve.processes.family import Family
from serve.processes.forked import Forked
from serve.processes.kernel import carry_name, cpu_seconds
from serve.processes.ledger import Ledger, LedgerEntry, hold_lock, sweep_shared_memory
from serve.processes.supervised import (
    Backoff,
    Clock,
    Hopeless,
    ProcessCondition,
    Supervised,
    SupervisedState,
    SystemClock,
)
from serve.processes.table import start_time

__all__ = [
    "Backoff",
    "Child",
    "Clock",
    "Exit",
    "Family",
    "Forked",
    "Hopeless",
    "Ledger",
    "LedgerEntry",
    "ProcessCondition",
    "Program",
    "Supervised",
    "SupervisedState",
    "SystemClock",
    "carry_name",
    "cpu_seconds",
    "hold_lock",
    "spawn",
    "start_time",
    "sweep_shared_memory",
]
