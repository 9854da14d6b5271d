"""Which signature is converted: the one that was asked for, or the only one; nothing is guessed."""

from collections.abc import Collection, Mapping

from serve.core.errors import ConversionFailed
from serve.tensors.datatypes import DATATYPES
from serve.tensors.signature import ModelTensor
from serve.workbench.conversion.faults import failed

KERAS, DEFAULT = "serve", "serving_default"
_NO_TENSORS = {"sparse tensor", "composite tensor", "resource", "variant"}


def choose_signature(names: Collection[str], wanted: str) -> str:
    """The signature to convert; `no_signature`, `unknown_signature` or `ambiguous_signature`.

    Keras 3 writes one and the same function as `serve` and as `serving_default`: those two are one.
    With a mapping their tensors have to be the same as well.
    """
    known = ", ".join(sorted(names))
    if not names:
        raise failed("no_signature")
    if wanted:
        if wanted in names:
            return wanted
        raise failed("unknown_signature", f"'{wanted}'; it has {known}")
    if len(names) == 1:
        return next(iter(names))
    if set(names) == {KERAS, DEFAULT} and _are_same(names):
        return DEFAULT
    raise failed("ambiguous_signature", known)


def _are_same(names: Collection[str]) -> bool:
    return not isinstance(names, Mapping) or names[KERAS] == names[DEFAULT]


def faults_of_tensors(specs: Collection[ModelTensor]) -> tuple[ConversionFailed, ...]:
    """What keeps inputs and outputs from being plain tensors of Triton, one fault for each."""
    found = []
    for spec in specs:
        if not spec.name.isprintable():
            why = f"the name {ascii(spec.name)[:300]} has unprintable characters"
            hint = "use a signature with printable tensor names"
            found.append(failed("unsupported_input", why, hint=hint))
        elif spec.datatype in _NO_TENSORS:
            why = f"'{spec.name}' is a {spec.datatype}"
            found.append(failed("unsupported_input", why, node=spec.name))
        elif spec.datatype not in DATATYPES or spec.datatype == "BF16":
            why = f"'{spec.name}' is {spec.datatype}"
            found.append(failed("unsupported_datatype", why, node=spec.name))
    return tuple(found)
