"""What was done with a model lately: tries and evaluations, where this gateway keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass

from serve.control.trying.records import TryLine
from serve.listeners.admin.context import Control
from serve.listeners.admin.evaluation_views import EvaluationLine
from serve.listeners.admin.evaluations import list_evaluations
from serve.listeners.admin.tries import list_tries

_MOST = 5


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest first."""

    tries: Sequence[TryLine] = ()
    evaluations: Sequence[EvaluationLine] = ()


async def recent(control: Control, model: str) -> Recent:
    """Of one model."""
    tries = await list_tries(control, model, _MOST) if control.tries is not None else []
    lines = await list_evaluations(control) if control.evaluations is not None else []
    return Recent(tries, [one for one in lines if one.model == model][:_MOST])
