"""What was done with a model lately: tries and evaluations, where this gateway keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass

from serve.admin.api.context import AdminContext
from serve.admin.api.evaluation_views import EvaluationLine
from serve.admin.api.evaluations import list_evaluations
from serve.admin.api.tries import list_tries
from serve.control.tries.records import TryLine

_MOST = 5


@dataclass(frozen=True, slots=True)
class Recent:
    """The newest first."""

    tries: Sequence[TryLine] = ()
    evaluations: Sequence[EvaluationLine] = ()


async def recent(control: AdminContext, model: str) -> Recent:
    """Of one model."""
    lines = [one for one in await list_evaluations(control) if one.model == model]
    return Recent(await list_tries(control, model, _MOST), lines[:_MOST])
