"""The gate: a converted model is published only after all of its steps.

    determinism → contract → numbers → batch independence → precision → verification

Models are given as runners: inputs by name in, outputs by name out. A fault of the source raises
`ConversionFailed`; one of the conversion is a step that has not passed.

In which precision the source itself computes: a model trained in FP16 cannot be held to FP32's.

Who reads the source's graph knows, and says it as the fact `arithmetic` of its signature: `fp16`.
Without that fact it is asked: a model that casts its inputs to FP16 answers the same, to the bit,
when they are rounded to FP16 before; one that computes in FP32 never does.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace

import numpy as np

from serve.core.versions import UNVERIFIED
from serve.tensors.contracts import Case
from serve.tensors.datatypes import Array
from serve.tensors.signature import ModelSignature
from serve.workbench.conversion.events import STAGES, Tell
from serve.workbench.conversion.gate.calibration import Division, narrow, same_winner
from serve.workbench.conversion.gate.determinism import determinism
from serve.workbench.conversion.gate.golden import cases
from serve.workbench.conversion.gate.input_search import Runner, SourceRange, ask, explore
from serve.workbench.conversion.gate.interface import channels_first, contract
from serve.workbench.conversion.gate.metric import measure
from serve.workbench.conversion.gate.neighbours import independence
from serve.workbench.conversion.gate.numbers import RunnerComparison
from serve.workbench.conversion.gate.output_survey import LOG, with_logarithms
from serve.workbench.conversion.gate.probes import GateProbe, count_probes, modest, ordinary, probes
from serve.workbench.conversion.gate.rules import RULES, Norm, PrecisionRule, rule_of
from serve.workbench.conversion.gate.samples import InputSamples, Labelled
from serve.workbench.conversion.report import GateStep, StepResult
from serve.workbench.conversion.request import GENERAL, ConversionRequest, Precision

# --- in which precision the source itself computes ------------------------------------------------


FACT = "arithmetic"
_SHARE = 1e-2  # by which inputs are changed to see that the answer depends on them


def arithmetic_of(
    source: Runner, signature: ModelSignature, probes: Iterable[GateProbe]
) -> Precision:
    """FP16 or FP32."""
    if FACT in signature.facts:
        is_half = signature.facts[FACT] == Precision.FP16
        return Precision.FP16 if is_half else Precision.FP32
    answers = [_is_half(source, probe.inputs) for probe in probes if probe.family == "normal"]
    return Precision.FP16 if answers and all(answers) else Precision.FP32


def _is_half(source: Runner, inputs: Mapping[str, Array]) -> bool:
    wide = [name for name, array in inputs.items() if array.dtype in (np.float32, np.float64)]
    if not wide:
        return False
    rounded = {n: inputs[n].astype(np.float16).astype(inputs[n].dtype) for n in wide}
    changed = {n: inputs[n] * inputs[n].dtype.type(1 + _SHARE) for n in wide}
    asked = (inputs, {**inputs, **rounded}, {**inputs, **changed})
    plain, half, other = (ask(source, each)[0] for each in asked)
    if plain is None or half is None or other is None:
        return False
    floats = [name for name, array in plain.items() if array.dtype.kind == "f"]
    is_same = all(np.array_equal(plain[name], half[name], equal_nan=True) for name in floats)
    is_dead = all(np.array_equal(plain[name], other[name], equal_nan=True) for name in floats)
    return is_same and not is_dead


# --- the gate -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """How the gate judged. `cases` are the golden ones; none where a step has not passed.

    `warnings` are for people: what was tried says less than it seems.
    """

    steps: tuple[StepResult, ...]
    is_batched: bool
    cases: tuple[Case, ...]
    warnings: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether every step has."""
        return all(step.passed for step in self.steps)


def run_gate(
    source: Runner,
    converted: Runner,
    *,
    expected: ModelSignature,
    found: ModelSignature,
    request: ConversionRequest,
    samples: InputSamples | None,
    labelled: Labelled | None,
    precision: Callable[[], StepResult] | None,
    tell: Tell,
    division: Division | None = None,
) -> GateVerdict:
    """Judge `converted`, whose signature is `found`, by `source`, whose signature is `expected`.

    Both are asked with samples as the source takes them; channels are moved here for the inputs
    that the request names. `precision` makes its step. `division` says how samples were
    divided for a calibration; `samples` are those that judge.
    """
    gate = _Gate(
        source,
        lambda inputs: converted(channels_first(inputs, request.nchw)),
        expected=expected,
        found=found,
        request=request,
        users=tuple(filter(None, (samples, labelled.samples if labelled else None))),
        labelled=labelled,
        tell=tell,
        has_labels=labelled is not None and (division is None or division.is_labelled),
        is_converted=division is not None,
    )
    steps = [gate.determinism(), gate.contract()]
    is_batched = False
    if steps[-1].passed:
        steps.append(gate.numbers())
    if steps[-1].passed:
        step, is_batched = gate.independence()
        steps.append(step)
    if precision is not None:
        steps.append(precision())
    if division is not None:
        steps.append(gate.verification(division))
    passed = all(step.passed for step in steps)
    golden = gate.cases(is_batched=is_batched and request.max_batch_size != 0) if passed else ()
    accepted = (str(one.facts[UNVERIFIED]) for one in steps if UNVERIFIED in one.facts)
    warnings = (*(f"not verified: {why}" for why in accepted), *gate.warnings())
    return GateVerdict(tuple(steps), is_batched, golden, warnings)


@dataclass(slots=True, eq=False)
class _Gate:
    """The steps, and what one learns for the next. Both models take inputs as the source does."""

    source: Runner
    converted: Runner
    _: KW_ONLY
    expected: ModelSignature
    found: ModelSignature
    request: ConversionRequest
    users: tuple[InputSamples, ...]  # the user's, plain and labelled
    labelled: Labelled | None
    tell: Tell
    has_labels: bool  # enough of them to decide in place of values
    is_converted: bool  # by an INT8 calibration of ours
    reach: SourceRange = field(default_factory=SourceRange)
    norms: Mapping[str, Norm] = field(default_factory=dict)
    arithmetic: Precision = Precision.FP32

    def determinism(self) -> StepResult:
        self._begin("determinism")
        self.reach = explore(self.source, self.expected, self.request.seed)
        of, seed = (self.expected, self.reach), self.request.seed
        typical = tuple(ordinary(*of, samples=self.users, seed=seed))
        step, self.norms = determinism(self.source, typical, tuple(modest(*of, seed=seed)))
        self.arithmetic = arithmetic_of(self.source, self.expected, typical)
        return replace(step, facts={**step.facts, FACT: str(self.arithmetic)})

    def contract(self) -> StepResult:
        self._begin("contract")
        return contract(self.expected, self.found, self.request.nchw)

    def numbers(self) -> StepResult:
        self._begin("numbers")
        is_exact = self._rule is RULES[Precision.FP32]
        logs = tuple(n.removesuffix(LOG) for n in self.norms if is_exact and n.endswith(LOG))
        numbers = RunnerComparison(
            with_logarithms(self.source, logs),
            with_logarithms(self.converted, logs),
            self.norms,
            self.request,
            self._rule,
            is_sampled=bool(self.users),
            is_labelled=self.has_labels,
        )
        return self._with_metric(numbers.run(self._probes()))

    def independence(self) -> tuple[StepResult, bool]:
        self._begin("batch")
        return independence(
            {"source": self.source, "converted": self.converted},
            self.expected,
            self.found,
            reach=self.reach,
            norms=self.norms,
            request=self.request,
            rules={"source": rule_of(self.arithmetic), "converted": self._rule},
            samples=self.users[0] if self.users else None,
        )

    def verification(self, division: Division) -> StepResult:
        """Whether the rows that judged an INT8 model say anything."""
        of = self.expected, self.reach
        generated = [each.inputs for each in ordinary(*of, samples=(), seed=self.request.seed)]
        why = division.lacks
        if not why and not division.is_labelled and division.calibrating:
            why = narrow((division.calibrating.arrays,))
        why = why or same_winner(self.source, self.users, generated)
        if not why:
            return StepResult(GateStep.VERIFICATION, True, division.summary)
        if not self.request.accept_unverified:
            return StepResult(GateStep.VERIFICATION, False, why, "unverified")
        said = f"not verified, as the request allows: {why}"
        return StepResult(GateStep.VERIFICATION, True, said, facts={UNVERIFIED: why})

    def cases(self, *, is_batched: bool) -> tuple[Case, ...]:
        return cases(
            self.source,
            self.converted,
            self.expected,
            reach=self.reach,
            norms=self.norms,
            request=self.request,
            rule=self._rule,
            samples=self.users,
            is_batched=is_batched,
        )

    def warnings(self) -> Iterator[str]:
        for name, norm in self.norms.items():
            if norm.is_constant and not name.endswith(LOG):
                yield f"output '{name}' is the same for all ordinary inputs; pass --samples"
            elif norm.is_sure:
                yield f"output '{name}' is 0 or 1 for all ordinary inputs; pass --samples"
        if self.request.precision is Precision.INT8 and not self.users and not self.is_converted:
            yield "INT8 was judged with generated inputs; pass --samples"
        outputs = {spec.name for spec in self.expected.outputs} | {GENERAL}
        for name in sorted(set(self.request.tolerances) - outputs):
            yield f"there is a tolerance for '{name}', which is not an output"

    @property
    def _rule(self) -> PrecisionRule:
        """What the converted model is held to."""
        return rule_of(self.request.precision, self.arithmetic)

    def _with_metric(self, step: StepResult) -> StepResult:
        """The step with what the labels say, which may be that it has not passed."""
        if self.labelled is None or step.code == "contract_differs":
            return step
        metric = measure(self.source, self.converted, self.labelled)
        facts = {**step.facts, "metric": metric.to_json()}
        if step.passed and not metric.is_kept(self.request.max_drop):
            why = f"{metric}; the limit is {self.request.max_drop * 100:.2f} pp"
            return replace(step, passed=False, code="metric_dropped", summary=why, facts=facts)
        summary = f"{step.summary}; {metric}" if step.passed else step.summary
        return replace(step, summary=summary, facts=facts)

    def _probes(self) -> Iterator[GateProbe]:
        """All of them, telling how far it is."""
        users, largest = self.users, self.request.max_batch_size
        of = self.expected, self.reach
        total = count_probes(*of, samples=users, largest=largest)
        every = probes(*of, samples=users, seed=self.request.seed, largest=largest)
        for done, probe in enumerate(every):
            self.tell("share", stage="numbers", done=done, total=total)
            yield probe

    def _begin(self, stage: str) -> None:
        self.tell("stage", stage=stage, text=STAGES[stage])
