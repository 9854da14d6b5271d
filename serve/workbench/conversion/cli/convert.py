"""`servegate convert`: TensorFlow models as ONNX, held against what they were."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli import convert_options as options
from serve.cli.options import AsJson
from serve.cli.output import say
from serve.cli.panels import Grouped
from serve.workbench.conversion.cli import arguments, inspect, jobs, trt

if TYPE_CHECKING:
    from serve.workbench.conversion.report import ConversionReport

app = typer.Typer(
    no_args_is_help=True,
    help="Convert models to ONNX or TensorRT, and verify the result.\n\n"
    "Example: servegate convert onnx saved_model --name digits --out model_repo",
    rich_markup_mode=None,
)
app.command("inspect")(inspect.inspect)
app.command("trt", cls=Grouped)(trt.trt)
app.command("ls")(jobs.list_jobs)
app.command("show")(jobs.show_job)
app.command("cancel")(jobs.cancel_job)
app.command("retry")(jobs.retry_job)
Source = Annotated[
    Path,
    typer.Argument(metavar="SOURCE", help="SavedModel folder, or .keras, .h5 or .onnx file."),
]


@app.command("onnx", cls=Grouped)
def onnx(
    source: Source,
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="Name of the model in DIR.")],
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="Model repository to write to.")
    ],
    as_version: Annotated[
        int,
        typer.Option(
            "--as-version",
            min=1,
            max=(1 << 31) - 1,
            metavar="N",
            help="Version number to write; existing versions are kept.",
        ),
    ] = 1,
    signature: options.Signature = "",
    precision: options.Precision = "fp32",
    samples: options.Samples = "",
    labelled: options.Labelled = "",
    max_drop: options.MaxDrop = "0.5pp",
    atol: options.Atol = None,
    rtol: options.Rtol = None,
    nchw: options.Nchw = None,
    max_batch_size: options.MaxBatchSize = None,
    golden: options.Golden = 4,
    seed: options.Seed = 0,
    accept_unverified: options.AcceptUnverified = False,
    memory: options.Memory = "",
    timeout: options.Timeout = "30m",
    json: AsJson = False,
) -> None:
    """Convert a model to ONNX and verify it.

    Writes the converted model to a model repository. If the results of the converted model differ
    from those of the source, the command writes nothing and exits with status 7. Exits with status
    1 if the source cannot be converted.

    Example: servegate convert onnx saved_model --name digits --out model_repo

    Example: servegate convert onnx net.keras --name net --out repo --precision fp16 --samples x.npz
    """
    from serve.cli.endings import report_end
    from serve.cli.talk import talk
    from serve.core.names import check_model_name
    from serve.workbench.conversion.cli.conversion import STOPPED, Converting, show

    talking = talk(json=json)
    with report_end(talking, lambda: STOPPED):
        check_model_name(name)
        request = arguments.make_request(
            str(source),
            signature=signature,
            precision=precision,
            nchw=nchw or (),
            samples=samples,
            labelled=labelled,
            max_drop=max_drop,
            atol=atol or (),
            rtol=rtol or (),
            golden=golden,
            max_batch_size=max_batch_size,
            seed=seed,
            accept_unverified=accept_unverified,
        )
        converting = Converting(talking, arguments.limits_of(memory, timeout))
        report = converting.convert(request, name, out, version=as_version)
        show(talking, report)
        talking.tell("result", ok=True, exit=0, entry=str(out / name), **_told(report))
    if not json:
        _close(report, f"wrote {out / name}")
        say(f"  report: {out / name / 'conversion.html'}")
        say(f"  next: servegate model push {out / name} {name}, or servegate up --model-repo {out}")


@app.command("verify", cls=Grouped)
def verify(
    source: Source,
    model: Annotated[Path, typer.Argument(metavar="ONNX", help="ONNX file to compare.")],
    signature: options.Signature = "",
    precision: options.Precision = "fp32",
    samples: options.Samples = "",
    labelled: options.Labelled = "",
    max_drop: options.MaxDrop = "0.5pp",
    atol: options.Atol = None,
    rtol: options.Rtol = None,
    nchw: options.Nchw = None,
    seed: options.Seed = 0,
    memory: options.Memory = "",
    timeout: options.Timeout = "30m",
    json: AsJson = False,
) -> None:
    """Compare an ONNX file with its source model.

    Writes nothing. Exits with status 7 if the results differ.

    Example: servegate convert verify saved_model model_repo/digits/1/model.onnx
    """
    from serve.cli.endings import report_end
    from serve.cli.talk import talk
    from serve.core.errors import Invalid
    from serve.workbench.conversion.cli.conversion import STOPPED, Converting, show

    talking = talk(json=json)
    with report_end(talking, lambda: STOPPED):
        if not model.is_file():
            raise Invalid(f"the file '{model}' does not exist", try_this="servegate convert onnx")
        request = arguments.make_request(
            str(source),
            signature=signature,
            precision=precision,
            nchw=nchw or (),
            samples=samples,
            labelled=labelled,
            max_drop=max_drop,
            atol=atol or (),
            rtol=rtol or (),
            seed=seed,
        )
        report = Converting(talking, arguments.limits_of(memory, timeout)).verify(request, model)
        show(talking, report)
        talking.tell("result", ok=True, exit=0, **_told(report))
    if not json:
        _close(report, f"{model} gives the same results as {source}")


def _told(report: "ConversionReport") -> dict[str, Any]:
    """What a program needs of a report that it has been told already."""
    return {
        "passed": report.passed,
        "is_batched": report.is_batched,
        "unverified": report.unverified,
        "digest": report.model.get("digest", ""),
        "peak_memory": report.peak_memory,
    }


def _close(report: "ConversionReport", text: str) -> None:
    """`wrote repo/net: 102 MB; took 26.4 s and 2.99 GB of memory; supports batching`."""
    from serve.cli.talk import amount

    seconds = sum(stage.seconds for stage in report.stages)
    took = f"took {seconds:.1f} s and {amount(report.peak_memory)} of memory"
    batches = "supports batching" if report.is_batched else "no batching"
    say(f"{text}: {amount(report.model['bytes'])}; {took}; {batches}")
