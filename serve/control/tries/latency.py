"""Where the time of a call went: the difference of what Triton has counted before and after it.

Triton counts for each version, not for each call. So the difference is this call's own only if no
other call of the version was counted meanwhile; else it is an average over all of them. It counts a
call a moment after it has answered it: who asks too early asks again.
"""

from collections.abc import Mapping
from typing import Any

from serve.control.tries.records import Latency

_PARTS = ("queue", "compute_input", "compute_infer", "compute_output")
_NS = 1e-9  # seconds
Statistics = Mapping[str, Any]


def counted(before: Statistics | None, after: Statistics | None) -> int:
    """How many calls that succeeded were counted between two readings; 0 for none known."""
    return max(_rise(before, after, "success", "count"), 0) if before and after else 0


def latency(seconds: float, before: Statistics | None, after: Statistics | None) -> Latency:
    """Of a call of `seconds`; the readings are Triton's statistics of the version that answered."""
    calls = counted(before, after)
    if not calls:
        return Latency(round_trip=seconds)
    parts = {part: _rise(before, after, part, "ns") * _NS / calls for part in _PARTS}
    if any(value < 0 for value in parts.values()):  # a replica has started anew meanwhile
        return Latency(round_trip=seconds)
    is_exact = calls == 1 and _rise(before, after, "fail", "count") == 0
    inside = _rise(before, after, "success", "ns") * _NS
    return Latency(
        round_trip=seconds,
        gateway_and_network=max(seconds - inside, 0.0) if is_exact else None,
        exact=is_exact,
        calls=calls,
        **parts,
    )


def _rise(before: Statistics | None, after: Statistics | None, part: str, unit: str) -> int:
    return _value(after, part, unit) - _value(before, part, unit)


def _value(statistics: Statistics | None, part: str, unit: str) -> int:
    try:
        return int((statistics or {})["inference_stats"][part][unit])
    except (KeyError, TypeError, ValueError):
        return 0
