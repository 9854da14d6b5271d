"""What the options of a conversion mean: a request, and the limits of its child process."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from serve.core.errors import Invalid

if TYPE_CHECKING:
    from serve.tensors.expected_outputs import Tolerance
    from serve.workbench.conversion.limits import ConversionLimits
    from serve.workbench.conversion.request import ConversionRequest

_SIZES = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12} | {
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_AMOUNT = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*\Z")
_LARGEST = 1e15  # of a number that anybody means: a petabyte, a tolerance
_SHARE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*(pp|%|)\s*\Z")


def make_request(
    source: str,
    *,
    signature: str = "",
    precision: str = "fp32",
    nchw: Iterable[str] = (),
    samples: str = "",
    labelled: str = "",
    max_drop: str = "0.5pp",
    atol: Iterable[str] = (),
    rtol: Iterable[str] = (),
    golden: int = 4,
    max_batch_size: int | None = None,
    seed: int = 0,
    accept_unverified: bool = False,
) -> "ConversionRequest":
    """The request that the options make; `Invalid` for the first that makes no sense."""
    from serve.workbench.conversion.request import ConversionRequest, Precision

    if precision not in list(Precision):
        raise Invalid(
            f"--precision cannot be '{precision}'", why=f"expected one of {', '.join(Precision)}"
        )
    for flag, path in (("--samples", samples), ("--labelled", labelled)):
        if path and not Path(path).is_file():
            raise Invalid(f"the file '{path}' does not exist", try_this=f"pass {flag} FILE.npz")
    return ConversionRequest(
        source=source,
        signature=signature,
        precision=Precision(precision),
        nchw=tuple(nchw),
        samples=samples,
        labelled=labelled,
        max_drop=share_of(max_drop),
        tolerances=tolerances_of(atol, rtol),
        golden=golden,
        max_batch_size=max_batch_size,
        seed=seed,
        accept_unverified=accept_unverified,
    )


def limits_of(memory: str, timeout: str) -> "ConversionLimits":
    """The limits of the child process; what is not said is what the machine has. People wait."""
    from serve.workbench.conversion.limits import ConversionLimits, default_limits

    default = default_limits()
    return ConversionLimits(
        int(_read(memory, _SIZES, "--memory", "4GB")) if memory else default.memory,
        _read(timeout, _SECONDS, "--timeout", "30m") if timeout else default.seconds,
        nice=0,
    )


def share_of(text: str) -> float:
    """`0.5pp` and `0.5%` as 0.005; a bare number is the share itself."""
    found = _SHARE.match(text)
    value = float(found[1]) / (100 if found[2] else 1) if found else -1.0
    if not 0 <= value <= 1:
        raise Invalid(f"--max-drop cannot be '{text}'", try_this="0.5pp, or 0.005")
    return value


def tolerances_of(atol: Iterable[str], rtol: Iterable[str]) -> "Mapping[str, Tolerance]":
    """By output; the general one under the empty name."""
    from serve.tensors.expected_outputs import Tolerance

    given = _by_output("--atol", atol), _by_output("--rtol", rtol)
    names = sorted({*given[0], *given[1]})
    return MappingProxyType(
        {name: Tolerance(given[0].get(name), given[1].get(name)) for name in names}
    )


def _by_output(option: str, words: Iterable[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for word in words:
        name, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not 0 <= value < _LARGEST:
            raise Invalid(
                f"{option} cannot be '{word}'", try_this=f"{option} 1e-4, or {option} OUTPUT=1e-4"
            )
        found[name] = value
    return found


def _read(text: str, units: Mapping[str, float], option: str, example: str) -> float:
    """A number with a unit, above 0."""
    found = _AMOUNT.match(text)
    unit = units.get(found[2].lower()) if found else None
    if found is None or unit is None or not 0 < float(found[1]) * unit < _LARGEST:
        raise Invalid(f"{option} cannot be '{text}'", try_this=f"{option} {example}")
    return float(found[1]) * unit
