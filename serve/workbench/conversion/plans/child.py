"""The child process for TensorRT: `python -m serve.workbench.conversion.plans.child TASK.json`.

| `task`      | does                                                     | `result.json`           |
|-------------|----------------------------------------------------------|-------------------------|
| `preflight` | looks for what TensorRT cannot take; needs no GPU        | what it computes in     |
| `build`     | builds the plan, runs the golden cases on it; needs one  | the facts of the plan   |

Events as in `conversion/events.py`. The first node that TensorRT refuses ends a preflight, the
others are notes before that.
"""

import json
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from serve.core.errors import ConversionFailed
from serve.tensors.contracts import read_contract
from serve.workbench.conversion.child_events import EventTeller
from serve.workbench.conversion.events import failure_facts
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.job import fault_of
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.kits import judge_case
from serve.workbench.conversion.plans.onsite import Failed
from serve.workbench.conversion.request import Precision

RESULT = "result.json"
_MOST_NOTES = 50
_CORRUPT = ("DecodeError", "InferenceError", "ValidationError")  # what ONNX says of broken files


def main() -> None:
    """Do what the file says that the command line names."""
    telling = EventTeller()
    try:
        path = Path(sys.argv[1])
        task = json.loads(path.read_bytes())
        work = {"preflight": preflight, "build": build}[task["task"]]
        (path.parent / RESULT).write_text(json.dumps(work(task, telling)))
    except Exception as error:
        traceback.print_exc()
        telling("failed", **failure_facts(_fault(error, telling.stage)))
        sys.exit(1)
    telling("done", passed=True)


def preflight(task: Mapping[str, Any], telling: EventTeller) -> Mapping[str, Any]:
    """`trt_unsupported` with the first node that TensorRT cannot take; the others are notes."""
    telling("stage", stage="preflight", text="looking for nodes that TensorRT does not support")
    import onnx

    from serve.workbench.conversion.graphs.contents import contents
    from serve.workbench.conversion.graphs.preflight import preflight as problems_of

    model = onnx.load(task["onnx"])
    found = problems_of(model)
    refused = [each for each in found if each.blocks]
    for each in [one for one in found if one not in refused[:1]][:_MOST_NOTES]:
        telling("note", text=f"{_where(each.operator, each.node)}{each.why}")
    if not refused:
        return {"contents": dict(contents(model))}
    first = refused[0]
    more = f"; and {len(refused) - 1} more" if len(refused) > 1 else ""
    why = f"{_where(first.operator, first.node)}{first.why}{more}"
    raise failed("trt_unsupported", why, operator=first.operator, node=first.node)


def _where(operator: str, node: str) -> str:
    return f"{operator or 'node'} '{node}': " if operator or node else ""


def build(task: Mapping[str, Any], telling: EventTeller) -> Mapping[str, Any]:
    """The facts of a plan that answers every golden case rightly; it lies where the task says."""
    telling("stage", stage="import", text="importing TensorRT")
    import tensorrt

    from serve.workbench.conversion.plans import builder
    from serve.workbench.conversion.plans.engine import GpuMemory, PlanModel
    from serve.workbench.conversion.plans.tensorrt_log import Logger, Monitor

    options = Options.from_json(task)
    plan, precision = Path(task["plan"]), Precision(task["precision"])
    order = builder.PlanOrder(Path(task["onnx"]), plan, options, precision, task["image"])
    logger, monitor = Logger(), Monitor(telling)
    telling("stage", stage="build", text="building the plan")
    facts = builder.build(order, tensorrt, logger, monitor)
    telling("stage", stage="golden", text="running the golden cases on the plan")
    model = PlanModel(tensorrt, plan.read_bytes(), logger, GpuMemory())
    facts = builder.proven(facts, model.layers({one.name: one.best for one in options.profiles}))
    contract = Path(task["contract"]).parent if task["contract"] else None
    for number, case in enumerate(read_contract(contract).cases if contract else ()):
        judge_case(case, number, model(case.inputs))
    return facts.to_json()


def _fault(error: Exception, stage: str) -> ConversionFailed:
    if isinstance(error, Failed):
        return failed(
            "trt_build_failed", str(error), hint="build on a machine with the GPU that will serve"
        )
    if type(error).__name__ in _CORRUPT:  # classes of packages that this process may not have
        return failed("source_corrupt", str(error).strip().partition("\n")[0][:300])
    if isinstance(error, ImportError) and (error.name or "").startswith("tensorrt"):
        return failed("trt_missing", str(error))
    return fault_of(error, stage)


if __name__ == "__main__":
    main()
