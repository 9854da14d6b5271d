"""What a hint asks for, in the same few words wherever people read it."""


def replicas(count: int) -> str:
    """`no replicas`, `1 replica`, `3 replicas`."""
    return f"{count or 'no'} replica{'' if count == 1 else 's'}"


def asked(desired: int, ready: int, starting: int) -> str:
    """`3 replicas, 1 more than now`; replicas that are starting count."""
    wanted, there = replicas(desired), ready + starting
    if desired > there:
        return f"{wanted}, {desired - there} more than now"
    if desired < there:
        return f"{wanted}, {there - desired} fewer than now"
    if not desired:
        return f"{wanted}, scaled to zero"
    return f"{wanted}, {starting} of them starting" if starting else wanted
