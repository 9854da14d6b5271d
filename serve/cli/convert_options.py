"""The options of a conversion, which `convert onnx`, `convert verify` and `model push` share."""

from typing import Annotated

import typer

from serve.cli.panels import option

# Groups in the help:
CONVERSION, VERIFICATION, LIMITS = "Conversion", "Verification", "Limits"

Signature = Annotated[
    str,
    option(
        CONVERSION, "NAME", "Signature to convert, if the model has more than one.", "--signature"
    ),
]
Precision = Annotated[
    str, option(CONVERSION, "fp32|fp16|int8", "Precision of the converted model.", "--precision")
]
Samples = Annotated[
    str,
    option(
        VERIFICATION,
        "FILE.npz",
        "Input rows for verification and INT8 calibration, one array per input.",
        "--samples",
    ),
]
Labelled = Annotated[
    str,
    option(
        VERIFICATION,
        "FILE.npz",
        "Labelled rows (with an additional array `labels`), to compare the accuracy.",
        "--labelled",
    ),
]
MaxDrop = Annotated[
    str,
    option(
        VERIFICATION,
        "SHARE",
        "Maximum accepted drop in accuracy on the labelled rows, such as 0.5pp (percentage "
        "points) or 0.005.",
        "--max-drop",
    ),
]
Atol = Annotated[
    list[str] | None,
    option(
        VERIFICATION,
        "[OUTPUT=]NUMBER",
        "Absolute tolerance of one output or of all (repeatable; the default depends on the "
        "precision).",
        "--atol",
    ),
]
Rtol = Annotated[
    list[str] | None,
    option(
        VERIFICATION,
        "[OUTPUT=]NUMBER",
        "Relative tolerance of one output or of all (repeatable; the default depends on the "
        "precision).",
        "--rtol",
    ),
]
Nchw = Annotated[
    list[str] | None,
    option(
        CONVERSION,
        "INPUT",
        "Change this input to NCHW layout (repeatable).",
        "--nchw",
    ),
]
MaxBatchSize = Annotated[
    int | None,
    option(
        CONVERSION,
        "N",
        "Maximum batch size in rows; 0 disables batching (default: 8).",
        "--max-batch-size",
        min=0,
        max=4096,
    ),
]
Memory = Annotated[
    str,
    option(
        LIMITS, "SIZE", "Memory limit, such as 4GB (default: 3/4 of the free memory).", "--memory"
    ),
]
Timeout = Annotated[str, option(LIMITS, "DURATION", "Time limit, such as 90s or 1h.", "--timeout")]
AcceptUnverified = Annotated[
    bool,
    option(
        VERIFICATION,
        "",
        "Accept an INT8 model that could not be verified; its report says so.",
        "--accept-unverified",
    ),
]
Seed = Annotated[
    int,
    option(VERIFICATION, "N", "Seed for the generated inputs.", "--seed", min=0, max=(1 << 32) - 1),
]
Golden = Annotated[
    int,
    typer.Option(
        "--golden", min=1, max=100, metavar="N", help="Number of rows to store as golden cases."
    ),
]
