"""What a process asks of the kernel for itself: to die with its parent, and to carry a name."""

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_libc = ctypes.CDLL(None)  # loaded here, because nothing may be loaded between fork and exec


def die_with(parent: int) -> None:
    """Be killed when this parent dies; called in the child, right after the fork.

    The kernel ties the wish to the *thread* that forked, so that has to be one that lives as long
    as its process; in Servegate it is the main thread.
    """
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent died before the kernel had noted the wish
        os._exit(1)


def carry_name(name: str) -> None:
    """The name that `ps -o comm`, `top` and `pgrep` show; the kernel keeps 15 bytes of it."""
    _libc.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
