"""What TensorRT says while it works: complaints to the talk, progress as `share` events.

Its classes come from TensorRT's own, so this is for the child process alone.
"""

import threading
from typing import Any

import tensorrt

from serve.workbench.conversion.events import Tell

_MOST_ERRORS = 20


class Logger(tensorrt.ILogger):  # type: ignore[misc]
    """Keeps what TensorRT complains of; all that matters goes to the talk of the process."""

    def __init__(self) -> None:
        tensorrt.ILogger.__init__(self)
        self.errors: list[str] = []

    def log(self, severity: Any, text: str) -> None:
        """Called by TensorRT, from any of its threads."""
        if severity in (tensorrt.ILogger.INTERNAL_ERROR, tensorrt.ILogger.ERROR):
            self.errors.append(text)
            del self.errors[:-_MOST_ERRORS]
        if severity != tensorrt.ILogger.VERBOSE:
            print(f"TensorRT: {text}", flush=True)

    @property
    def last(self) -> str:
        """The last complaint, or a sentence that there was none."""
        return self.errors[-1] if self.errors else "TensorRT gave no reason"


class Monitor(tensorrt.IProgressMonitor):  # type: ignore[misc]
    """Tells the outermost phase alone; TensorRT calls it from several threads."""

    def __init__(self, tell: Tell) -> None:
        tensorrt.IProgressMonitor.__init__(self)
        self._tell = tell
        self._totals: dict[str, int] = {}
        self._lock = threading.Lock()

    def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
        """A phase of so many steps begins."""
        with self._lock:
            if parent_phase is None:
                self._totals[phase_name] = num_steps

    def step_complete(self, phase_name: str, step: int) -> bool:
        """A step is done, counted from 0; True lets the build go on."""
        with self._lock:
            total = self._totals.get(phase_name)
            if total:
                self._tell("share", stage="build", done=step + 1, total=total)
        return True

    def phase_finish(self, phase_name: str) -> None:
        """A phase is over, whether or not all its steps were told."""
        with self._lock:
            self._totals.pop(phase_name, None)
