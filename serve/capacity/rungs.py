"""Which setups a rung has, and how the last one is brought to an end."""

from serve.capacity.knowledge import CONFIRMING, Knowledge
from serve.capacity.measurements import OpenLoopTrial
from serve.capacity.setup import BatchSetup

TRIALS = (1, 2, 3)
"""Of each setup in a rung."""
WEIGHTS = (1.0, 1.0, 1.5)
"""Of a trial in a rung."""
FINAL = 8
"""Measurements that are kept for the final."""
RESERVE = 4
"""Measurements that no rung may use."""

_LARGEST = 10  # setups in the first rung
_CLOSE = 1.05  # what passed and what failed are close
_STEP = 1.03
_BETTER = 1.03  # another setup takes the finalist's place from here on
_ALIKE = 0.03  # by how much a setup counts less for each like it that is already in the rung
_CAREFUL = 0.25  # the quantile of the belief to go to where nothing has passed yet
_DEEPER = 1.2  # and the first step down from there; the second is twice as deep, and so on
_FINAL_STEP = "final"


def rung_sizes(room: int) -> tuple[int, int, int]:
    """The setups of each rung, where so many measurements are left for rungs and final."""
    first = min(max(2, (room - FINAL) * 4 // 11), _LARGEST)
    return first, max(2, first // 2), 2


def promising(known: Knowledge, size: int, trials: int) -> list[BatchSetup]:
    """The setups of the next rung, each `trials` times; in the order of the grid: few reloads."""
    left = {each: known.belief(each).rate for each in known.ranked()}
    chosen: list[BatchSetup] = []
    while left and len(chosen) < size:
        best = max(left, key=lambda each: left[each] * _worth(each, chosen))
        chosen.append(best)
        del left[best]
    order = {each: place for place, each in enumerate(known.predictions)}
    chosen.sort(key=lambda each: order[each])
    return [each for each in chosen for _ in range(trials)]


def finalist(known: Knowledge, present: BatchSetup | None) -> BatchSetup:
    """The setup that is believed to be best; the present one until another is clearly better."""
    first = known.ranked()[0]
    if present is None or present in known.out:
        return first
    is_clear = known.belief(first).rate > _BETTER * known.belief(present).rate
    return first if is_clear else present


def final(known: Knowledge, setup: BatchSetup, left: int) -> OpenLoopTrial | None:
    """The next trial of the finalist, where so many measurements are left; None when it is done."""
    if known.is_confirmed(setup):
        return None
    passed, failed, belief = known.passed(setup), known.failed(setup), known.belief(setup)
    if not passed:
        rate = min(belief.quantile(_CAREFUL), failed / _STEP) / _DEEPER ** (2 ** _missed(known) - 1)
        return OpenLoopTrial(setup, to_four_figures(rate), 1.5, _FINAL_STEP)
    if failed <= passed * _CLOSE or left <= 2:
        return OpenLoopTrial(setup, passed, 2.0, CONFIRMING)
    rate = min(max(belief.rate, passed * _STEP), failed / (1 + (_STEP - 1) / 2))
    return OpenLoopTrial(setup, to_four_figures(rate), 1.5, _FINAL_STEP)


def to_four_figures(rate: float) -> float:
    """For people."""
    return float(f"{rate:.4g}")


def _missed(known: Knowledge) -> int:
    """How many trials of the final have missed while nothing has passed: each goes further down."""
    if any(map(known.passed, known.predictions)):
        return 0
    tried = (trial for each in known.predictions for trial, _ in known.trials(each))
    return sum(trial.step == _FINAL_STEP for trial in tried)


def _worth(setup: BatchSetup, chosen: list[BatchSetup]) -> float:
    """Less than 1 where like setups, which differ in their delay at most, are chosen already."""
    return 1 - _ALIKE * sum(
        (setup.instances, setup.max_batch_size, setup.batches)
        == (each.instances, each.max_batch_size, each.batches)
        for each in chosen
    )
