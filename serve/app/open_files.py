"""Open files: how many a process may have (`ulimit -n`), and how many its connections need.

The soft limit is often 1024, far below the hard one, so a start raises it. Children inherit it.
"""

import resource

from serve.core.errors import CannotStart
from serve.settings import Settings

LEAST = 256  # a control plane has 32 open, a Triton with one model about 70
_BESIDE = 100  # files of a worker that are no connections of clients


def allow_open_files(settings: Settings, *, data: bool) -> str:
    """Raise the limit as far as is needed and allowed; a warning where that is too low.

    `data`: the data plane's workers are started. `CannotStart` where nothing would work.
    """
    # One for each client on both ports, and one to a Triton for each call over HTTP.
    wanted = 2 * settings.max_connections + settings.max_in_flight + _BESIDE if data else LEAST
    allowed = _raise_limit(wanted)
    if allowed < LEAST:
        raise CannotStart(
            f"the limit of open files (ulimit -n) is only {allowed}",
            why=f"a process needs at least {LEAST}, and {wanted} for the connections that the "
            "settings allow"
            if data
            else f"a process needs at least {LEAST}",
            try_this=f"run ulimit -n {wanted} before the start, or set LimitNOFILE={wanted} in "
            "systemd",
        )
    if allowed < wanted:
        return (
            f"warning: the limit of open files (ulimit -n) is only {allowed}. A worker needs "
            f"{wanted} for max_connections = {settings.max_connections} on each port; clients "
            "beyond the limit wait until others disconnect"
        )
    return ""


def _raise_limit(wanted: int) -> int:
    """The soft limit in force afterwards."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    reachable = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < reachable:
        resource.setrlimit(resource.RLIMIT_NOFILE, (reachable, hard))
        soft = reachable
    return wanted if soft == resource.RLIM_INFINITY else soft
