"""The last gate: a Triton of this machine loads the entry and answers its golden cases.

What the converter checks with ONNX Runtime says nothing about config.pbtxt: a configuration that
Triton refuses, or that gives tensors other shapes than the golden cases have, is only seen here.
Where no Triton is installed, the report says that the entry was not loaded.
"""

import asyncio
import logging
from pathlib import Path

from serve.core.errors import CannotStart, Invalid, ServegateError, TrialFailed, TritonDidNotStart
from serve.tensors.contracts import Case, judge, read_contract
from serve.triton.config import parse
from serve.triton.direct_prediction import predict
from serve.triton.installation import Installation, MachineFacts
from serve.triton.layout import ModelFolder
from serve.triton.quarantine import Quarantine, QuarantineOrder, QuarantineTrial, TrialLimits
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.report import GateStep, StepResult

_SILENT = logging.Logger("servegate.trial")  # why a trial fails is in its error
_SILENT.addHandler(logging.NullHandler())
_PATIENCE = 60.0  # seconds for one answer


def load(
    repository: Path,
    name: str,
    version: int,
    *,
    state: Path,
    memory: int,
    facts: MachineFacts | None = None,
) -> StepResult:
    """How `repository/name` loads and answers; `not_served` when it does not.

    `state` is a folder for the throw-away Triton, which may take so many bytes of memory.
    """
    try:
        installation = Installation.find(facts or MachineFacts.here())
        quarantine = Quarantine(
            installation,
            state=state,
            logger=_SILENT,
            limits=TrialLimits(memory=memory),
            steps_back=False,  # a person waits for it
        )
        return asyncio.run(_loaded(quarantine, repository, name, version))
    except (CannotStart, TritonDidNotStart) as problem:
        said = f"not loaded in Triton: {problem}"
        return StepResult(GateStep.SERVING, True, said, facts={"loaded": False})


async def _loaded(quarantine: Quarantine, repository: Path, name: str, version: int) -> StepResult:
    entry = repository / name
    config = parse(ModelFolder(entry).config_text() or "")
    cases = read_contract(entry).cases
    try:
        async with quarantine.trial(
            repository, [QuarantineOrder(name, config.for_load([version]))]
        ) as trial:
            for case in cases:
                if why := await _wrong(trial, name, version, case):
                    raise TrialFailed("its results differ from the golden cases", why=why)
    except TrialFailed as error:
        raise failed(
            "not_served", f"{error.what}: {error.why}" if error.why else error.what
        ) from error
    count = f"{len(cases)} golden case{'' if len(cases) == 1 else 's'}"
    return StepResult(GateStep.SERVING, True, f"Triton loads it, and {count} passed")


async def _wrong(trial: QuarantineTrial, name: str, version: int, case: Case) -> str:
    """Why the answer to a golden case is wrong; empty when it is right."""
    try:
        answer = await predict(
            trial.replica,
            name,
            version,
            case.inputs,
            timeout=_PATIENCE,
            datatypes=case.datatypes,
        )
        why = judge(case, answer)
    except (Invalid, ServegateError) as error:
        why = str(error)
    return f"'{case.name}': {why}" if why else ""
