"""What a hint asks for, in the same few words wherever people read it."""


def replicas(count: int) -> str:
    """`no replica`, `1 replica`, `3 replicas`."""
    return f"{count or 'no'} replica" + ("s" if count > 1 else "")


def asked(desired: int, ready: int, starting: int) -> str:
    """`3 replicas, 1 more than there are`; those that still start are there."""
    wanted, there = replicas(desired), ready + starting
    if desired > there:
        return f"{wanted}, {desired - there} more than there {_are(there)}"
    if desired < there:
        return f"{wanted}, {there - desired} fewer than there {_are(there)}"
    if not desired:
        return f"{wanted}: the pool is asleep"
    return f"{wanted}, of which {starting} still start{_s(starting)}" if starting else wanted


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _s(count: int) -> str:
    return "s" if count == 1 else ""
