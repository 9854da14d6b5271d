"""The command line that does a conversion again, for reports and for people."""

import shlex
from collections.abc import Iterator

from serve.workbench.conversion.request import GENERAL, ConversionRequest

_PLAIN = ConversionRequest("")


def command_of(request: ConversionRequest, *, name: str = "NAME", out: str = "DIR") -> str:
    """`servegate convert onnx …` with every option that is not the default, quoted for a shell.

    `--seed` is always there: it decides which inputs the gate draws.
    """
    words = ["servegate", "convert", "onnx", request.source, "--name", name, "--out", out]
    return shlex.join([*words, *_options(request)])


def _options(request: ConversionRequest) -> Iterator[str]:
    for option, value, default in (
        ("--signature", request.signature, _PLAIN.signature),
        ("--precision", str(request.precision), str(_PLAIN.precision)),
        ("--samples", request.samples, _PLAIN.samples),
        ("--labelled", request.labelled, _PLAIN.labelled),
        ("--max-drop", f"{request.max_drop * 100:g}pp", f"{_PLAIN.max_drop * 100:g}pp"),
        ("--golden", str(request.golden), str(_PLAIN.golden)),
        ("--max-batch-size", str(request.max_batch_size), str(_PLAIN.max_batch_size)),
    ):
        if value != default:
            yield from (option, value)
    if request.accept_unverified:
        yield "--accept-unverified"
    for each in request.nchw:
        yield from ("--nchw", each)
    for output, tolerance in sorted(request.tolerances.items()):
        where = "" if output == GENERAL else f"{output}="
        for option, number in (("--atol", tolerance.atol), ("--rtol", tolerance.rtol)):
            if number is not None:
                yield from (option, f"{where}{number:g}")
    yield from ("--seed", str(request.seed))
