"""What somebody may ask of a model: whatever is routed to, a label, or a version."""

from collections.abc import Sequence

from serve.admin.api import schemas


def selectors_of(told: schemas.ModelDetail, asked: Sequence[str] = ()) -> list[tuple[str, str]]:
    """As (value, text); also what a link asks for that is not there."""
    total = sum(told.split.values()) or 1
    parts = ", ".join(
        f"version {number}: {100 * share / total:.3g} %" for number, share in told.split.items()
    )
    found = [("", f"as routed ({parts})" if parts else "as routed")]
    found += [(label, f"{label} → {number}") for label, number in sorted(told.labels.items())]
    found += [
        (
            str(one.version),
            f"version {one.version}" + ("" if one.state == "ready" else f" ({one.state})"),
        )
        for one in told.versions
    ]
    known = {value for value, _ in found}
    return found + [(one, f"{one} (unknown)") for one in dict.fromkeys(asked) if one not in known]


def ready_of(told: schemas.ModelSummary) -> list[int]:
    """The versions that can be asked, ascending."""
    return [one.version for one in told.versions if one.state == "ready"]


def usual_sides(told: schemas.ModelDetail, main: int | None) -> tuple[str, str | None]:
    """The version that serves now, and the newest other one that is ready, if there is one."""
    ready = ready_of(told)
    others = [number for number in ready if number != main]
    if main not in ready or not others:
        return "", None
    return str(main), str(others[-1])
