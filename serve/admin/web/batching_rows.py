"""What the page *Batching* shows: rows, bars with their lengths, and the steps of a change.

It is made of what the admin API gives, and adds nothing to its numbers.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from serve.admin.api.batching import BatchingView, StepView, WindowView
from serve.admin.api.serving_configurations import ChangeView, ServingConfigurationView
from serve.admin.web.batching_form import filled
from serve.admin.web.page_templates import segment
from serve.control.batching.reconfiguration import ChangeOutcome, Phase
from serve.triton.batching_text import Meaning, meaning
from serve.triton.config import parse

_MOST = 16  # bars; more sizes are put together
_STEPS = {
    Phase.TRYING: "Trial",
    Phase.MEASURING: "Measuring latency and errors before the change",
    Phase.APPLYING: "Rolling out to one replica at a time",
    Phase.WATCHING: "Monitoring latency and errors",
}
_ENDS = {
    ChangeOutcome.APPLIED: ("good", "Applied"),
    ChangeOutcome.TAKEN_BACK: ("bad", "Rolled back"),
    ChangeOutcome.REFUSED: ("bad", "Rejected. Nothing was changed"),
    ChangeOutcome.REPLACED: ("warn", "Replaced by a later change"),
    ChangeOutcome.FAILED: ("bad", "Failed"),
}


@dataclass(frozen=True, slots=True)
class FieldRow:
    """What one field means; `before` is what it meant as it came, where that was changed."""

    field: str
    text: str
    is_changed: bool = False
    before: str = ""


@dataclass(frozen=True, slots=True)
class ExecutionBar:
    """Executions of one size, or of sizes beside each other; `length` in percent of the longest."""

    name: str
    executions: int
    share: float
    seconds: float
    length: float


@dataclass(frozen=True, slots=True)
class TimeShare:
    """A part of the time of a call, in percent of all of it."""

    name: str
    seconds: float
    start: float
    width: float
    shade: int


@dataclass(frozen=True, slots=True)
class FieldWarning:
    """Something that may be wrong; `fill` is what its command would type into the form."""

    name: str
    field: str
    why: str
    fix: str
    fill: Mapping[str, str]
    since: float | None = None


@dataclass(frozen=True, slots=True)
class EnsembleStepRow:
    """A step of an ensemble, and where its own page is."""

    view: StepView
    link: str
    pieces: Sequence[TimeShare]


@dataclass(frozen=True, slots=True)
class ChangeStage:
    """A step of a change: `done`, `now`, or to come."""

    text: str
    state: str


@dataclass(frozen=True, slots=True)
class ChangeProgress:
    """How far the newest change is. `mark` differs whenever anything of it does."""

    view: ChangeView
    stages: Sequence[ChangeStage]
    kind: str
    end: str
    mark: str

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return bool(self.view.outcome)

    @property
    def has_spread(self) -> bool:
        """Whether replicas were told of it."""
        before = self.view.phase in (Phase.TRYING, Phase.MEASURING)
        return not before and self.view.outcome != ChangeOutcome.REFUSED


def rows(view: BatchingView, served: ServingConfigurationView | None) -> list[FieldRow]:
    """Each field in words; of what people have changed, also what it meant before."""
    now = [Meaning(one.field, one.text) for one in view.meaning]
    if served is None or not view.revised:
        return [FieldRow(one.field, one.text) for one in now]
    came = {one.field: one.text for one in meaning(parse(served.base))}
    there = {one.field for one in now}
    made = []
    for one in now:
        before = came.get(one.field, "Not set.")
        is_changed = _top(one.field) in view.revised and before != one.text
        made.append(FieldRow(one.field, one.text, is_changed, before if is_changed else ""))
    made += [FieldRow(name, "—", True, text) for name, text in came.items() if name not in there]
    return made


def bars(window: WindowView) -> list[ExecutionBar]:
    """Executions by their size; neighbouring sizes together where there are many."""
    each = -(-len(window.batches) // _MOST) or 1
    groups = [window.batches[at : at + each] for at in range(0, len(window.batches), each)]
    most = max((sum(one.share for one in group) for group in groups), default=1.0) or 1.0
    made = []
    for group in groups:
        first, last = group[0].rows, group[-1].rows
        executions = sum(one.executions for one in group)
        spent = sum(one.seconds * one.executions for one in group)
        share = sum(one.share for one in group)
        name = str(first) if first == last else f"{first}–{last}"
        made.append(
            ExecutionBar(name, executions, share, spent / max(executions, 1), 100 * share / most)
        )
    return made


def pieces(window: WindowView) -> list[TimeShare]:
    """Where the time of a call goes within Triton."""
    rest = max(window.whole - window.queue - window.compute, 0.0)
    return list(
        _pieces(("queue", window.queue, 1), ("compute", window.compute, 3), ("other", rest, 0))
    )


def said(view: BatchingView) -> list[FieldWarning]:
    """Hints and advice, what goes on before what may be."""
    found = [
        FieldWarning(one.hint, "", one.why, one.fix, filled(one.fix), one.since)
        for one in view.hints
    ]
    found += [
        FieldWarning(one.rule, one.field, one.why, one.fix, filled(one.fix)) for one in view.advice
    ]
    return found


def steps(view: BatchingView) -> list[EnsembleStepRow]:
    """The steps of an ensemble, or the models that one calls; bars are of one scale."""
    found = view.parts.steps if view.parts else []
    longest = max((one.queue + one.compute for one in found), default=0.0)
    return [
        EnsembleStepRow(
            one,
            _link(one),
            list(_pieces(("queue", one.queue, 1), ("compute", one.compute, 3), of=longest)),
        )
        for one in found
    ]


def progress(change: ChangeView | None) -> ChangeProgress | None:
    """The newest change, step by step; None where there is none."""
    if change is None:
        return None
    kind, end = _ENDS.get(ChangeOutcome(change.outcome), ("", "")) if change.outcome else ("", "")
    text = repr((change.phase, change.outcome, change.told, sorted(change.replicas.items())))
    mark = f"{zlib.crc32(text.encode()):08x}"
    return ChangeProgress(change, list(_stages(change)), kind, end, mark)


def _stages(change: ChangeView) -> Iterator[ChangeStage]:
    watched = (Phase.MEASURING, Phase.WATCHING)
    is_watched = change.watch_until is not None or change.phase in watched
    order = [one for one in _STEPS if is_watched or one not in watched]
    at = order.index(change.phase) if change.phase in order else len(order)
    is_kept = change.outcome == ChangeOutcome.APPLIED
    for place, one in enumerate(order):
        if change.phase is Phase.DONE and not is_kept:
            return
        state = "done" if place < at or is_kept else "now" if place == at else "to come"
        yield ChangeStage(_STEPS[one], "" if change.phase is Phase.TAKING_BACK else state)


def _pieces(*parts: tuple[str, float, int], of: float = 0.0) -> Iterator[TimeShare]:
    whole = of or sum(seconds for _, seconds, _ in parts)
    start = 0.0
    for name, seconds, shade in parts:
        width = 100 * seconds / whole if whole else 0.0
        if seconds:
            yield TimeShare(name, seconds, start, width, shade)
        start += width


def _link(one: StepView) -> str:
    model, at, number = one.asked.rpartition("@")
    return f"/models/{segment(model)}/versions/{number}/batching" if at else ""


def _top(field: str) -> str:
    """The field of the configuration that a path leads into."""
    for end in (".", "[", " "):
        field = field.partition(end)[0]
    return field
