"""`servegate convert inspect`: what is in a source, and what a conversion would say of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.options import AsJson
from serve.cli.output import as_json, say

if TYPE_CHECKING:
    from serve.workbench.conversion.sources.inspection import Inspection

_MOST_NODES = 2  # of an operator that are shown


def inspect(
    source: Annotated[
        Path,
        typer.Argument(metavar="SOURCE", help="SavedModel folder, or .keras, .h5 or .onnx file."),
    ],
    signature: Annotated[
        str,
        typer.Option(
            "--signature",
            metavar="NAME",
            help="Signature to inspect, if the model has more than one.",
        ),
    ] = "",
    json: AsJson = False,
) -> None:
    """Inspect a model without converting or running it. Does not need TensorFlow.

    Exits with status 1 if a conversion would fail; the output then lists every reason.

    Example: servegate convert inspect saved_model
    """
    import asyncio

    from serve.workbench.conversion.sources.inspection import inspect

    found = asyncio.run(inspect(source, signature=signature))
    if json:
        as_json(found.to_json())
    else:
        _show(found)
    if found.faults:
        raise typer.Exit(1)


def _show(found: "Inspection") -> None:
    from serve.cli.output import table
    from serve.cli.talk import amount

    facts = {"kind": str(found.kind), "size": amount(found.size), "sha256": found.digest}
    facts |= {"tags": ", ".join(found.tags)} if found.tags else {}
    facts |= {"memory": f"up to about {amount(found.memory)} to convert it"} if found.memory else {}
    facts |= {name: _word(value) for name, value in found.facts.items()}
    table(("SOURCE", found.name), [(name, text) for name, text in facts.items() if text])
    _table(("SIGNATURE", "TENSOR", "NAME", "DATATYPE", "SHAPE"), _tensors(found))
    _table(
        ("OPERATOR", "COUNT", "NODES"),
        [
            (each.name, str(each.count), ", ".join(each.nodes[:_MOST_NODES]))
            for each in found.operators
        ],
    )
    _table(("LAYER", "COUNT"), [(each.name, str(each.count)) for each in found.layers])
    _table(
        ("FLAVOUR", "NEEDS", "UNSUPPORTED OPERATORS"),
        [(each.flavour, each.needs, ", ".join(each.lacks)) for each in found.flavours],
    )
    _table(
        ("ERROR", "WHAT", "WHY", "TRY"),
        [(each.code, each.what, each.why, each.try_this) for each in found.faults],
    )
    if not found.faults:
        say("found nothing that prevents a conversion")
    if len(found.signatures) > 1 and found.chosen:
        say(f"* signature to convert: {found.chosen}; choose another with --signature")


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from serve.cli.output import table

    if rows:
        print()
        table(columns, rows)


def _tensors(found: "Inspection") -> list[tuple[str, ...]]:
    return [
        (
            f"{name} *" if name == found.chosen else name,
            role.removesuffix("s"),
            str(spec["name"]),
            str(spec["datatype"]),
            str(spec["shape"]),
        )
        for name, signature in found.signatures.items()
        for role in ("inputs", "outputs")
        for spec in signature[role]
    ]


def _word(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return str(value)
