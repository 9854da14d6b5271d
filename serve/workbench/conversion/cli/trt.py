"""`servegate convert trt`: a TensorRT plan beside an ONNX file, or what builds it elsewhere."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from serve.cli import convert_options as options
from serve.cli.endings import report_end
from serve.cli.options import AsJson
from serve.cli.panels import option
from serve.cli.talk import talk
from serve.core.errors import Invalid
from serve.workbench.conversion.cli import arguments
from serve.workbench.conversion.cli.conversion import Converting
from serve.workbench.conversion.cli.flavours import (
    FlavourForm,
    FlavourOptions,
    Level,
    PrintedCommand,
    run,
)

_PLAN, _KIT = "Plan", "Build on another machine"  # groups in the help


def trt(
    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="Model folder of a model repository, or a SavedModel folder, .keras, .h5 or .onnx "
            "file to convert first.",
        ),
    ],
    name: Annotated[
        str,
        typer.Option(
            "--name", metavar="NAME", help="Name of the model, if SOURCE is converted first."
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="DIR", help="Model repository, if SOURCE is converted first."
        ),
    ] = None,
    signature: options.Signature = "",
    precision: options.Precision = "fp32",
    samples: options.Samples = "",
    labelled: options.Labelled = "",
    max_drop: options.MaxDrop = "0.5pp",
    atol: options.Atol = None,
    rtol: options.Rtol = None,
    max_batch_size: options.MaxBatchSize = None,
    accept_unverified: options.AcceptUnverified = False,
    flavour: Annotated[
        list[FlavourForm] | None,
        option(
            _PLAN,
            "plan|onnx+trt",
            "Flavour to add: plan for a TensorRT plan, or onnx+trt for ONNX Runtime with "
            "TensorRT (repeatable; default: plan).",
            "--flavour",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        option(
            _PLAN,
            "INPUT=MIN:OPT:MAX",
            "Minimum, optimum and maximum shape of an input, such as "
            "x=1x8x8x1:8x8x8x1:32x8x8x1 (repeatable; default: from max_batch_size).",
            "--profile",
        ),
    ] = None,
    version_compatible: Annotated[
        bool,
        option(
            _PLAN,
            "",
            "Build a plan that also runs on later TensorRT versions.",
            "--version-compatible",
        ),
    ] = False,
    hardware_compatible: Annotated[
        Level,
        option(
            _PLAN,
            "none|ampere+|same-capability",
            "Other GPUs on which the plan must also run.",
            "--hardware-compatible",
        ),
    ] = Level.NONE,
    tf32: Annotated[
        bool,
        option(_PLAN, "", "Allow TF32 for FP32 operations.", "--tf32"),
    ] = False,
    workspace: Annotated[
        int,
        option(
            _PLAN,
            "MIB",
            "GPU memory limit for the build in MiB; 0 for no limit.",
            "--workspace",
            min=0,
        ),
    ] = 0,
    timing_cache: Annotated[
        Path | None,
        option(
            _PLAN,
            "FILE",
            "TensorRT timing cache, which makes later builds faster.",
            "--timing-cache",
        ),
    ] = None,
    image: Annotated[
        str,
        option(_KIT, "IMAGE", "Triton image that will serve the plan.", "--image"),
    ] = "",
    shown: Annotated[
        PrintedCommand | None,
        option(
            _KIT,
            "job|docker|trtexec",
            "Print a Kubernetes Job or a command line that builds the plan, instead of "
            "building it. With job and docker, also write the build kit.",
            "--print",
        ),
    ] = None,
    kit: Annotated[
        Path | None,
        option(_KIT, "DIR", "Folder of the build kit (default: NAME-kit).", "--kit"),
    ] = None,
    built: Annotated[
        Path | None,
        option(_KIT, "DIR", "Add the plan that was built in this kit.", "--built"),
    ] = None,
    claim: Annotated[
        str,
        option(
            _KIT,
            "NAME",
            "PersistentVolumeClaim that contains the kit (with --print job).",
            "--claim",
        ),
    ] = "servegate-kits",
    gpu_product: Annotated[
        str,
        option(
            _KIT,
            "PRODUCT",
            "Value of the node label nvidia.com/gpu.product, such as NVIDIA-H100-80GB-HBM3 (with "
            "--print job).",
            "--gpu-product",
        ),
    ] = "",
    memory: options.Memory = "",
    timeout: options.Timeout = "30m",
    json: AsJson = False,
) -> None:
    """Add a TensorRT plan to a model folder. The ONNX file is kept as a fallback.

    If TensorRT is installed, the command builds the plan on this machine and runs the golden cases
    on it. Otherwise, use --print to write a build kit (a folder with everything that the build
    needs), run the printed command on the GPU machine, and then add the plan with --built.

    Examples:

      servegate convert trt models/digits

      servegate convert trt models/digits --print docker --image IMAGE

      servegate convert trt models/digits --built digits-kit
    """
    asked = FlavourOptions(
        tuple(flavour or [FlavourForm.PLAN]),
        tuple(profile or ()),
        version_compatible,
        hardware_compatible,
        tf32,
        workspace << 20,
        timing_cache,
        image,
        shown,
        kit,
        built,
        claim,
        gpu_product,
    )
    talking = talk(json=json)
    with report_end(talking, lambda: "stopped; no plan was added"):
        limits = arguments.limits_of(memory, timeout)
        if name or out is not None:
            if not name or out is None:
                raise Invalid(
                    "--name and --out need each other", try_this="pass --name NAME --out DIR"
                )
            request = arguments.make_request(
                str(source),
                signature=signature,
                precision=precision,
                samples=samples,
                labelled=labelled,
                max_drop=max_drop,
                atol=atol or (),
                rtol=rtol or (),
                max_batch_size=max_batch_size,
                accept_unverified=accept_unverified,
            )
            Converting(talking, limits).convert(request, name, out)
            source = out / name
        result = asyncio.run(run(source, asked, talking, limits))
        if json:
            talking.tell("result", ok=True, exit=0, **result)
        elif "text" in result:
            print(result["text"])
