"""`servegate convert trt`: a TensorRT plan beside an ONNX file, or what builds it elsewhere."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from serve.cli import convert_options as options
from serve.cli.converting import Converting
from serve.cli.endings import told
from serve.cli.flavouring import Asked, Form, Level, Shown, run
from serve.cli.options import AsJson
from serve.cli.talk import talk
from serve.core.errors import Invalid


def trt(
    source: Annotated[
        Path, typer.Argument(help="An entry (a model's folder), or a SavedModel, .keras, .onnx.")
    ],
    name: Annotated[str, typer.Option("--name", help="Of a new entry.")] = "",
    out: Annotated[Path | None, typer.Option("--out", help="The repository for it.")] = None,
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
        list[Form] | None, typer.Option("--flavour", help="What to add, plan unless it is said.")
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", help="Shapes of an input: x=1x8x8x1:8x8x8x1:32x8x8x1"),
    ] = None,
    version_compatible: Annotated[
        bool, typer.Option("--version-compatible", help="Runs on later TensorRTs, too.")
    ] = False,
    hardware_compatible: Annotated[
        Level, typer.Option("--hardware-compatible", help="On which other GPUs it is to run.")
    ] = Level.NONE,
    tf32: Annotated[bool, typer.Option("--tf32", help="Let FP32 be computed in TF32.")] = False,
    workspace: Annotated[
        int, typer.Option("--workspace", min=0, help="MiB of the GPU for building; 0 for all.")
    ] = 0,
    timing_cache: Annotated[
        Path | None, typer.Option("--timing-cache", help="A file that makes the next build faster.")
    ] = None,
    image: Annotated[
        str, typer.Option("--image", help="Triton's image that will serve the plan.")
    ] = "",
    shown: Annotated[
        Shown | None, typer.Option("--print", help="Print this instead of building.")
    ] = None,
    kit: Annotated[
        Path | None, typer.Option("--kit", help="The folder for a building kit.")
    ] = None,
    built: Annotated[
        Path | None, typer.Option("--built", help="Add the plan of this kit, which was built.")
    ] = None,
    claim: Annotated[
        str, typer.Option("--claim", help="The volume claim that holds the kit, for a Job.")
    ] = "servegate-kits",
    gpu_product: Annotated[
        str, typer.Option("--gpu-product", help="NVIDIA-H100-80GB-HBM3: the node, for a Job.")
    ] = "",
    memory: options.Memory = "",
    timeout: options.Timeout = "30m",
    json: AsJson = False,
) -> None:
    """Add a TensorRT plan to an entry; the ONNX file stays the last resort.

    Where TensorRT is installed the plan is built here, and must answer the golden cases. Elsewhere
    a building kit is made, and the docker line that builds it where the GPU is; then --built.

    Examples:

      servegate convert trt models/digits

      servegate convert trt models/digits --print docker --image IMAGE

      servegate convert trt models/digits --built digits-kit
    """
    asked = Asked(
        tuple(flavour or [Form.PLAN]),
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
    with told(talking, lambda: "stopped; no plan was added"):
        limits = options.limits_of(memory, timeout)
        if name or out is not None:
            if not name or out is None:
                raise Invalid("a new entry needs both", try_this="--name NAME --out DIR")
            request = options.make_request(
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
