"""Hints for people: a row of the table, and all that is to say of one pool but its arithmetic."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from serve.capacity.scaling.texts import asked

Page = Mapping[str, Any]
HEADS = ("POOL", "DESIRED", "READY", "STARTING", "DEMAND", "BOUNDS", "WHY")
NONE = "–"


def row(page: Page) -> tuple[str, ...]:
    """A pool in the table; only its first reason."""
    reasons = page["reasons"]
    return (
        page["pool"],
        f"{page['desired']}{'' if page['confidence'] == 'high' else ' (low confidence)'}",
        str(page["ready"]),
        str(page["starting"]),
        number(page["demand"]),
        allowed(page["bounds"]),
        reason(reasons[0]) if reasons else "",
    )


def head(page: Page) -> Iterator[str]:
    """What is wanted, and why."""
    yield f"{page['pool']}: {asked(page['desired'], page['ready'], page['starting'])}"
    yield (
        f"  {page['ready']} ready, {page['starting']} starting; bounds {allowed(page['bounds'])}; "
        f"as of {moment(page['at'])}"
    )
    if page["confidence"] != "high":
        yield "  low confidence: the readings are incomplete"
    for one in page["reasons"]:
        yield f"  why: {reason(one)}"


def reason(one: Page) -> str:
    """With its code, for those who look it up."""
    return f"{one['text']}  [{one['code']}]"


def allowed(bounds: Page) -> str:
    """`1 to 8`, `0 or 1 to 8, GPUs for 6`, and what a schedule says of it."""
    text = f"{bounds['least']} to {bounds['most']}"
    if bounds["to_zero"] and bounds["least"]:
        text = f"0 or {text}"
    if bounds["budget"] is not None:
        text += f", GPUs for {bounds['budget']}"
    return f"{text} ({bounds['schedule']})" if bounds.get("schedule") else text


def moment(at: float) -> str:
    """Seconds of the epoch as `2026-11-22 15:36:02Z`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}Z"


def number(value: float | None) -> str:
    """Three digits; a dash where nobody knows."""
    return NONE if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
