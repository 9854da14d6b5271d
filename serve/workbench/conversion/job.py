"""The child process of a conversion: `python -m serve.workbench.conversion.job TASK.json`.

It binds itself to its limits, does the work of `pipeline.py`, and says how it ended: every fault
becomes the event `failed`. What nobody has foreseen becomes `converter_crashed` with one line for
people; its traceback goes to the talk.
"""

import resource
import sys
import traceback
from pathlib import Path

from serve.core.errors import ConversionFailed, ServegateError
from serve.model_files.reader import lacks_memory
from serve.workbench.conversion.child_events import EventTeller
from serve.workbench.conversion.events import STAGES, failure_facts
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.task import ConversionTask

_NEEDED = frozenset({"tensorflow", "keras", "tf2onnx", "onnx", "onnxruntime", "onnxslim", "h5py"})
_BESIDE = 4 << 30  # bytes of address space for stacks and arenas, which are not filled
_LARGEST_FILE = 16 << 30  # bytes
_FULL = ("No space left on device", "Disk quota exceeded", "File too large")  # as strerror says


def main() -> None:
    """Do what the file says that the command line names."""
    telling = EventTeller()
    try:
        task = ConversionTask.read(Path(sys.argv[1]))
        bind(task.memory)
        from serve.workbench.conversion.pipeline import run

        run(task, telling)
    except Exception as error:
        traceback.print_exc()
        telling("failed", **failure_facts(fault_of(error, telling.stage)))
        sys.exit(1)
    telling("done", passed=True)


def bind(memory: int) -> None:
    """Limits of the kernel, wide ones: the parent watches what is really taken."""
    limit(resource.RLIMIT_CORE, 0)
    limit(resource.RLIMIT_DATA, min(memory + _BESIDE, sys.maxsize))
    limit(resource.RLIMIT_FSIZE, _LARGEST_FILE)


def limit(kind: int, most: int) -> None:
    """Never above what this process may have already."""
    hard = resource.getrlimit(kind)[1]
    bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (bound, bound))


def fault_of(error: Exception, stage: str) -> ConversionFailed:
    """The fault that an error is, in this stage of the work."""
    if isinstance(error, ConversionFailed):
        return error
    if isinstance(error, ServegateError):
        return failed("source_corrupt" if stage == "open" else "converter_crashed", str(error))
    doing = STAGES.get(stage, stage) or "starting"
    said = f"{type(error).__name__}: {_line(error)}"
    if any(words in said for words in _FULL):
        return failed("no_space", f"{said}, while {doing}")
    if isinstance(error, MemoryError) or lacks_memory(said):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        return failed("out_of_memory", f"it had used {peak / 1e9:.2f} GB while {doing}")
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if isinstance(error, ImportError) and package in _NEEDED:
        return failed("converter_missing", f"the package '{package}' cannot be imported: {error}")
    return failed("converter_crashed", f"while {doing}: {said}")


def _line(error: Exception) -> str:
    """The first line of what an error says; its own words are often pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:500] if lines else "no message"


if __name__ == "__main__":
    main()
