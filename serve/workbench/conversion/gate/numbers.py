"""Step 3: the converted model gives the source's numbers, for every input that is tried.

With FP16 and INT8 only the user's samples count, and where there are none, the families that
calibration draws from: such a model is right for the values that it was made for.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.gate.determinism import answer_of
from serve.workbench.conversion.gate.families import CALIBRATING
from serve.workbench.conversion.gate.input_search import Runner, ask
from serve.workbench.conversion.gate.output_survey import LOG
from serve.workbench.conversion.gate.probes import GateProbe
from serve.workbench.conversion.gate.rules import Norm, PrecisionRule, tolerance_of
from serve.workbench.conversion.gate.tallies import JudgedOutput, OutputTally
from serve.workbench.conversion.gate.unsteady import movement, nudge, with_room, without_wild
from serve.workbench.conversion.report import GateStep, StepResult
from serve.workbench.conversion.request import ConversionRequest, Precision


@dataclass(frozen=True, slots=True)
class Wrong:
    """The first fault that was found."""

    code: str
    why: str


@dataclass(slots=True, eq=False)
class RunnerComparison:
    """Compares two runners call by call and remembers how it went."""

    source: Runner
    converted: Runner
    norms: Mapping[str, Norm]
    request: ConversionRequest
    rule: PrecisionRule
    is_sampled: bool  # the user has brought samples
    is_labelled: bool = False
    tallies: dict[str, OutputTally] = field(default_factory=dict)
    users: dict[str, OutputTally] = field(default_factory=dict)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    wrong: Wrong | None = None

    def run(self, probes: Iterable[GateProbe]) -> StepResult:
        """All of them, and what is to be said about it."""
        for probe in probes:
            said = self._skipped(probe) or self.judge(probe)
            self.inputs.append({"input": probe.label} | ({"skipped": said} if said else {}))
        self._finish()
        return self._result()

    def judge(self, probe: GateProbe) -> str:
        """One call; says why it was not judged, if it was not."""
        expected = answer_of(self.source, probe)
        if expected is None:
            return "the source rejects it"
        if probe.family in ("large", "huge", "small") and not _is_finite(expected):
            return "the source itself gives NaN or infinity"
        got, trouble = ask(self.converted, probe.inputs)
        if got is None:
            self._blame(
                "numbers_differ", f"the converted model fails with {probe.label}: {trouble}"
            )
            return ""
        judged = self._judged(probe, expected, got)
        if not probe.is_ordinary and self._is_unsteady(judged.values()):
            return "the source itself is unstable there"
        for name, one in judged.items():
            tally = self.tallies.setdefault(name, OutputTally(name))
            tally.add(one, probe.label)
            if probe.is_users:
                self.users.setdefault(name, OutputTally(name)).add(one, probe.label)
            if one.excess > 1 and (self._gates(name) or one.is_lost):
                self._blame_element(name, one, probe)
        return ""

    def _skipped(self, probe: GateProbe) -> str:
        if self.request.precision is Precision.FP32 or probe.is_users:
            return ""
        if self.is_sampled:
            return f"{self.request.precision} is judged with the samples"
        return "" if probe.family in CALIBRATING else f"not used for {self.request.precision}"

    def _judged(
        self, probe: GateProbe, expected: Mapping[str, Array], got: Mapping[str, Array]
    ) -> dict[str, JudgedOutput]:
        """Every output that can be compared; first by the plain rule, then with room."""
        found: dict[str, JudgedOutput] = {}
        for name, array in expected.items():
            if name not in got:
                self._blame("contract_differs", f"output '{name}' is missing ({probe.label})")
                continue
            if got[name].shape == array.shape and got[name].dtype.kind == array.dtype.kind:
                found[name] = JudgedOutput.of(
                    name,
                    got[name],
                    array,
                    norms=self.norms,
                    rule=self.rule,
                    request=self.request,
                )
        lost = [n for n, a in expected.items() if n in got and n not in found]
        far = [name for name, one in found.items() if one.excess > 1 and self._gates(name)]
        if not lost and not far:
            return found
        moved = movement(self.source, probe.inputs, expected, self.rule.shake)
        nudged = nudge(self.source, probe.inputs, expected) if far else {}
        for name in lost:
            if not np.isinf(moved[name]).all() or not moved[name].size:
                self._blame_shape(name, got[name], expected[name], probe)
        for name in far:
            plain, wide = found[name], with_room(found[name], moved[name], self.rule)
            if probe.is_ordinary and tolerance_of(self.request, name).says_values:
                bound = np.where(np.isinf(wide.bound), np.inf, plain.bound)  # as the user says
                wide = replace(plain, bound=bound)
            found[name] = without_wild(wide, nudged[name], self.rule) if name in nudged else wide
        return found

    def _gates(self, name: str) -> bool:
        """Whether values of this output decide; a share of winners or a metric may do instead."""
        said = tolerance_of(self.request, name)
        if said.says_values:
            return not name.endswith(LOG)
        is_metric = self.is_labelled and self.request.precision is Precision.INT8
        return said.top1 is None and not is_metric

    def _is_unsteady(self, judged: Iterable[JudgedOutput]) -> bool:
        return any(one.unjudged > self.rule.unjudged * one.gaps.size for one in judged)

    def _finish(self) -> None:
        """What is decided over all calls: unsteady elements, and winners."""
        if not self.tallies and self.wrong is None:
            self._blame("numbers_differ", "no input could be judged; pass --samples")
        for name, tally in self.tallies.items():
            if tally.unjudged > self.rule.unjudged * tally.elements:
                share = tally.unjudged / tally.elements
                why = f"'{name}' cannot be judged: the source is unstable in {share:.0%} of it"
                self._blame("numbers_differ", why)
            said = tolerance_of(self.request, name)
            judged, wanted = self._winners(name, said.top1)
            if judged is not None and judged.top1 is not None and judged.top1 < wanted:
                same = f"{judged.top1:.2%} of {judged.rows} rows"
                why = f"the top class of '{name}' is the same in {same}, {wanted:.2%} are required"
                self._blame("numbers_differ", why)

    def _winners(self, name: str, said: float | None) -> tuple[OutputTally | None, float]:
        """Whose winners count, and which share must stay: by default only of the user's samples."""
        if said is not None:
            return self.users.get(name) or self.tallies[name], said
        is_coarse = self.request.precision is not Precision.FP32 and not self.is_labelled
        return (self.users.get(name) if is_coarse else None), self.rule.top1

    def _blame_element(self, name: str, one: JudgedOutput, probe: GateProbe) -> None:
        place = one.place
        where = f"'{name}'{list(place) if place else ''}"
        got, expected = one.got[place], one.expected[place]
        why = f"{where} is {_shown(got)}, the source gives {_shown(expected)} ({probe.label})"
        if one.expected.dtype.kind == "f" and not one.is_lost:
            why += f"; the difference is {one.gaps[place]:.3g}, the limit {one.bound[place]:.3g}"
        self._blame("not_finite" if one.is_lost else "numbers_differ", why)

    def _blame_shape(self, name: str, got: Array, expected: Array, probe: GateProbe) -> None:
        is_kind = got.shape == expected.shape
        shown = (got.dtype, expected.dtype) if is_kind else (list(got.shape), list(expected.shape))
        what = "type" if is_kind else "shape"
        why = f"output '{name}' has {what} {shown[0]}, but {shown[1]} in the source ({probe.label})"
        self._blame("contract_differs", why)

    def _blame(self, code: str, why: str) -> None:
        self.wrong = self.wrong or Wrong(code, why)

    def _result(self) -> StepResult:
        errors = tuple(tally.error() for tally in self.tallies.values())
        facts: dict[str, Any] = {
            "inputs": self.inputs,
            "worst input": {name: one.worst_input for name, one in self.tallies.items()},
            "unsteady": {n: one.unjudged for n, one in self.tallies.items() if one.unjudged},
            "constant": sorted(name for name, norm in self.norms.items() if norm.is_constant),
        }
        if self.wrong is not None:
            return StepResult(
                GateStep.NUMBERS, False, self.wrong.why, self.wrong.code, errors, facts
            )
        worst = max(errors, key=lambda one: one.relative)
        tried = sum("skipped" not in one for one in self.inputs)
        off = f"the largest error is {worst.relative:.2g} of the scale of '{worst.name}'"
        summary = f"{tried} calls agree; {off}"
        return StepResult(GateStep.NUMBERS, True, summary, outputs=errors, facts=facts)


def _is_finite(outputs: Mapping[str, Array]) -> bool:
    return all(np.isfinite(one).all() for one in outputs.values() if one.dtype.kind == "f")


def _shown(element: Any) -> str:
    return f"{element:.6g}" if isinstance(element, np.floating) else repr(element)[:60]
