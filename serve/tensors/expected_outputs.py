"""Whether an answer is the expected one, output by output.

| elements of an output       | right when                                                      |
|-----------------------------|-----------------------------------------------------------------|
| floats                      | off by atol + rtol·abs(expected) at most; NaN and ±∞ the same    |
| whole numbers, truth values | equal; by tolerance where the output has one of its own         |
| texts                       | equal                                                           |

With `top1`, rows of scores (the last axis of an output, of two places or more) are right when so
large a share of them has its highest score at the same place; their values then count only if a
tolerance is given as well.
"""

from dataclasses import dataclass

import numpy as np

from serve.tensors.datatypes import Array, datatype_of

ATOL, RTOL = 1e-4, 1e-3


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may differ; None stands for what is not said. `top1` is a share above 0, up to 1."""

    atol: float | None = None
    rtol: float | None = None
    top1: float | None = None

    def over(self, general: "Tolerance") -> "Tolerance":
        """This one, and the general one for what it does not say."""
        return Tolerance(
            general.atol if self.atol is None else self.atol,
            general.rtol if self.rtol is None else self.rtol,
            general.top1 if self.top1 is None else self.top1,
        )

    @property
    def says_values(self) -> bool:
        """Whether it says how far values may be off."""
        return self.atol is not None or self.rtol is not None


NOTHING_SAID = Tolerance()


def judge_output(name: str, got: Array, expected: Array, own: Tolerance, general: Tolerance) -> str:
    """Empty when it is right, else why not; `own` is of this output, `general` of its case."""
    kinds = datatype_of(got, name), datatype_of(expected, name)
    if kinds[0] != kinds[1]:
        return f"output '{name}' is {kinds[0]}, expected {kinds[1]}"
    if got.shape != expected.shape:
        return f"output '{name}' has the shape {list(got.shape)}, expected {list(expected.shape)}"
    if expected.dtype.kind in "OSU" or (expected.dtype.kind in "biu" and own == NOTHING_SAID):
        return _unequal(name, got, expected)
    allowed = own if expected.dtype.kind in "biu" else own.over(general)
    is_scores = expected.ndim > 0 and expected.shape[-1] > 1
    if allowed.top1 is not None and is_scores:
        why = _other_winners(name, got, expected, allowed.top1)
        if why or not allowed.says_values:
            return why
    return _far_off(name, got, expected, allowed)


def _unequal(name: str, got: Array, expected: Array) -> str:
    differ = np.asarray(got != expected)
    if not differ.any():
        return ""
    place = np.unravel_index(int(differ.argmax()), differ.shape)
    where = _where(name, place)
    return f"{where} is {_shown(got[place])}, expected {_shown(expected[place])}"


def _other_winners(name: str, got: Array, expected: Array, share: float) -> str:
    """By rows of scores; a NaN wins wherever it is, so it may stand only where it is expected."""
    found, wanted = got.astype(np.float64), expected.astype(np.float64)
    if (stray := np.isnan(found) & ~np.isnan(wanted)).any():
        return f"{_where(name, np.unravel_index(int(stray.argmax()), stray.shape))} is nan"
    same = found.argmax(axis=-1) == wanted.argmax(axis=-1)
    right = float(np.mean(same)) if same.size else 1.0
    if right >= share:
        return ""
    return f"output '{name}' has the expected top class in {right:.4g} of the rows" + (
        f", {share:.4g} are required" if share < 1 else ""
    )


def _far_off(name: str, got: Array, expected: Array, tolerance: Tolerance) -> str:
    atol = ATOL if tolerance.atol is None else tolerance.atol
    rtol = RTOL if tolerance.rtol is None else tolerance.rtol
    found, wanted = got.astype(np.float64), expected.astype(np.float64)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    finite = np.isfinite(found) & np.isfinite(wanted)
    with np.errstate(invalid="ignore", over="ignore"):
        gap = np.where(same, 0.0, np.where(finite, np.abs(found - wanted), np.inf))
        allowed = np.where(finite, atol + rtol * np.abs(wanted), atol)
        excess = np.where(same, -1.0, gap - allowed)
    if not (excess > 0).any():
        return ""
    place = np.unravel_index(int(excess.argmax()), excess.shape)
    says = f"{_where(name, place)} is {_shown(got[place])}, expected {_shown(expected[place])}"
    if not finite[place]:
        return says
    return f"{says} (off by {gap[place]:.3g}, allowed {allowed[place]:.3g})"


def _where(name: str, place: tuple[np.intp, ...]) -> str:
    index = f"[{','.join(str(int(one)) for one in place)}]" if place else ""
    return f"output '{name}'{index}"


def _shown(element: object) -> str:
    if isinstance(element, bytes):
        element = element.decode("utf-8", "backslashreplace")
    if isinstance(element, np.floating):
        return f"{float(element):.6g}"
    text = repr(element) if isinstance(element, str) else str(element)
    return text if len(text) <= 60 else f"{text[:57]}..."
