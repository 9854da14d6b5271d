"""Step 1: the source, asked twice, answers the same. Its answers are surveyed on the way."""

from collections.abc import Mapping, Sequence

import numpy as np

from serve.tensors.datatypes import Array
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.gate.input_search import Runner, ask
from serve.workbench.conversion.gate.output_survey import Survey
from serve.workbench.conversion.gate.probes import GateProbe
from serve.workbench.conversion.gate.rules import Norm, gap, root_mean_square
from serve.workbench.conversion.report import GateStep, StepResult

LEAST = 1e-5  # of an output's size; threads that add in another order stay below


def determinism(
    source: Runner, typical: Sequence[GateProbe], spare: Sequence[GateProbe] = ()
) -> tuple[StepResult, Mapping[str, Norm]]:
    """Ask everything twice, and the first inputs once more after all others.

    `spare` inputs are asked only until one is taken, where no typical one is. `not_deterministic`
    names the output. The user's samples must be taken: else `samples_invalid`.
    """
    survey, asked, same = Survey(), 0, True
    first: tuple[GateProbe, Mapping[str, Array]] | None = None
    for number, probe in enumerate((*typical, *spare)):
        if first is not None and number >= len(typical):
            break
        answer = answer_of(source, probe)
        if answer is None:
            continue
        asked += 1
        survey.add(answer)
        first = first or (probe, answer)
        same &= _compare(answer, source(probe.inputs), probe)
    if first is None:
        raise failed(
            "samples_invalid",
            "the source accepts none of the generated inputs",
            hint="pass --samples FILE.npz with inputs that it accepts",
        )
    same &= _compare(first[1], source(first[0].inputs), first[0])
    said = "bit for bit" if same else "within rounding"
    summary = f"two runs of the source agree {said}"
    facts = {"inputs": asked, "identical": same}
    return StepResult(GateStep.DETERMINISM, True, summary, facts=facts), survey.norms()


def answer_of(source: Runner, probe: GateProbe) -> Mapping[str, Array] | None:
    """What the source says; None where it does not take a generated input."""
    answer, trouble = ask(source, probe.inputs)
    if answer is None and probe.is_users:
        why = f"the source rejects them ({probe.label}): {trouble}"
        raise failed("samples_invalid", why)
    return answer


def _compare(a: Mapping[str, Array], b: Mapping[str, Array], probe: GateProbe) -> bool:
    """Whether both are the same to the bit; raises where they differ by more than rounding."""
    same = True
    for name, one in a.items():
        other = b[name]
        if one.shape != other.shape:
            raise _differs(name, probe, f"has shape {list(one.shape)}, then {list(other.shape)}")
        gaps = gap(other, one)
        worst = float(gaps.max(initial=0.0))
        if not worst:
            continue
        same = False
        scale = root_mean_square(one.astype(np.float64)) if one.dtype.kind == "f" else 0.0
        if worst > LEAST * scale:
            raise _differs(name, probe, f"differs by {worst:.3g} (its scale is {scale:.3g})")
    return same


def _differs(name: str, probe: GateProbe, what: str) -> Exception:
    return failed(
        "not_deterministic", f"in two runs with the same input ({probe.label}), '{name}' {what}"
    )
