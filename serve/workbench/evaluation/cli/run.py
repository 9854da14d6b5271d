"""`servegate eval run`: begin an evaluation, follow it, and say what it came to."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.client import AdminClient, connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.panels import option
from serve.core.errors import CheckFailed, Conflict, ServegateError, Unavailable
from serve.workbench.evaluation.cli.options import PATH, Label, Slices

if TYPE_CHECKING:
    from serve.cli.talk import CommandTalk

_DATASET, _EVALUATION, _CALLS = "Dataset", "Evaluation", "Calls"  # groups in the help


def run(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model to evaluate.")],
    dataset: Annotated[
        str,
        option(
            _DATASET,
            "NAME|PATH",
            "Dataset on the gateway, or a local file or folder to upload first.",
            "--dataset",
        ),
    ],
    a: Annotated[
        str,
        option(
            _EVALUATION,
            "V|LABEL",
            "Version to evaluate (default: the one that receives the most traffic).",
            "-a",
        ),
    ] = "",
    b: Annotated[
        str,
        option(_EVALUATION, "V|LABEL", "Second version, to compare with the first.", "-b"),
    ] = "",
    gate: Annotated[
        list[str] | None,
        option(
            _EVALUATION,
            "CONDITION",
            "Condition such as 'drop<=0.5pp' (repeatable). Exits with status 7 if it is not met.",
            "--gate",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        option(_DATASET, "N", "Number of rows to evaluate (default: all).", "--limit", min=1),
    ] = None,
    batch: Annotated[
        int,
        option(_CALLS, "N", "Rows per call.", "--batch", min=1, max=1024),
    ] = 1,
    concurrency: Annotated[
        int,
        option(_CALLS, "N", "Number of concurrent calls.", "--concurrency", min=1, max=64),
    ] = 4,
    grpc: Annotated[
        bool,
        option(_CALLS, "", "Call over gRPC instead of HTTP.", "--grpc"),
    ] = False,
    output: Annotated[
        str,
        option(
            _CALLS,
            "NAME",
            "Output with the scores, if the model has more than one output.",
            "--output",
        ),
    ] = "",
    label: Label = "",
    slices: Slices = "",
    detach: Annotated[
        bool,
        option(_EVALUATION, "", "Start the evaluation and return immediately.", "--detach"),
    ] = False,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Evaluate one or two versions on a labelled dataset.

    The evaluation runs in the gateway. Ctrl-C does not stop it.

    Example: servegate eval run digits --dataset held-out/ -a 1 -b 2

    Example: servegate eval run digits --dataset held-out -a stable -b candidate
    --gate 'accuracy(b)>=0.95' --gate 'drop<=0.5pp'
    """
    from serve.cli.endings import report_end
    from serve.cli.talk import talk

    admin = connect(admin_url, key_file)
    body = {
        "model": model,
        "dataset": dataset,
        "a": a,
        "b": b or None,
        "via": "grpc" if grpc else "http",
        "concurrency": concurrency,
        "batch": batch,
        "output": output or None,
        "gates": gate or [],
        "limit": limit,
    }
    talking, begun = talk(json=json), ""
    with report_end(talking, lambda: _goes_on(begun)):
        body |= _dataset(admin, dataset, label, slices)
        begun = admin.post(PATH, body)["id"]
        talking.tell("begun", f"started evaluation {begun}", id=begun)
        if detach:
            talking.tell("result", ok=True, exit=0, id=begun)
            return
        finish(admin, begun, talking)


def finish(admin: AdminClient, identity: str, talking: "CommandTalk") -> None:
    """Follow one to its end and show it; raises what it ended with, and gates that failed."""
    from serve.cli.talk import JsonEvents
    from serve.workbench.evaluation.cli.progress import follow
    from serve.workbench.evaluation.cli.report import lines

    page = asyncio.run(follow(admin, identity, talking))
    is_for_programs = isinstance(talking, JsonEvents)
    if page["report"] is not None and not is_for_programs:
        for line in lines(page):
            print(line)
    error = _error_of(page)
    if error is not None:
        if is_for_programs:
            talking.tell("evaluation", **page)
        raise error
    talking.tell("result", ok=True, exit=0, evaluation=dict(page))


def _dataset(admin: AdminClient, which: str, label: str, slices: str) -> dict[str, Any]:
    """The dataset's name and revision; a file or a folder is sent first."""
    path = Path(which)
    if not (path.exists() and ("/" in which or path.suffix or path.is_dir())):
        return {"dataset": which}
    from serve.workbench.evaluation.cli.datasets import sent

    kept = sent(admin, path, "", label, slices, json=True)
    return {"dataset": kept["name"], "revision": kept["revision"]}


def _goes_on(identity: str) -> str:
    if not identity:
        return "stopped; no evaluation was started"
    return (
        f"stopped following; evaluation {identity} continues in the gateway. Next: "
        f"servegate eval show {identity} --follow, or servegate eval cancel {identity}"
    )


def _error_of(page: Mapping[str, Any]) -> ServegateError | None:
    """What an evaluation has ended with."""
    identity, state = page["id"], page["state"]
    resume = f"servegate eval resume {identity}"
    if state == "failed":
        return Unavailable(f"evaluation {identity} failed", why=page["why"], try_this=resume)
    if state != "done":
        return Conflict(f"evaluation {identity} is {state}", try_this=resume)
    return gates_error(page["report"]["gates"] if page["report"] else [])


def gates_error(gates: list[dict[str, Any]]) -> CheckFailed | None:
    """The gates that did not pass, as an error; None when all did."""
    failed = [f"{one['text']}: {shown(one['value'])}" for one in gates if not one["passed"]]
    if not failed:
        return None
    error = CheckFailed("a gate failed", failed)
    error.code = "gate_failed"
    return error


def shown(value: float | None) -> str:
    """A measured number."""
    return "not measured" if value is None else f"measured {value:.6g}"
