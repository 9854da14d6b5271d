"""Bounding: a hint says no more than people allow, and that it does."""

from serve.capacity.scaling.signals import Bounds, Code, PoolSignal, Reason, ReplicaHint


def hint_of(
    signal: PoolSignal,
    bounds: Bounds,
    desired: int,
    demand: float,
    reasons: tuple[Reason, ...],
    confidence: str = "high",
) -> ReplicaHint:
    """Within what people allow."""
    codes = {one.code for one in reasons}
    said = list(reasons)
    has_none = Code.IDLE in codes or not signal.ready + signal.starting
    least = 0 if bounds.to_zero and has_none else bounds.least
    if desired < least:
        desired = least
        said.append(Reason(Code.LEAST, f"the minimum is {least}"))
    most = bounds.highest
    if desired > most:
        code = Code.MOST if most == bounds.most else Code.BUDGET
        said.append(Reason(code, f"{desired} are needed, but the limit is {most}"))
        desired = most
    return ReplicaHint(
        signal.name,
        desired,
        signal.ready,
        signal.starting,
        demand,
        tuple(said),
        confidence,
    )
