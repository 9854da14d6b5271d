"""`servegate model skew`: compares training samples with the recorded preprocessing."""

import json as jsons
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from serve.cli.asked import parse_asked
from serve.cli.client import connect, segment
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say
from serve.cli.pieces import read_small
from serve.cli.versions import number_of
from serve.core.errors import Invalid

SKEWED = 7
_LARGEST_SENT = 1 << 23  # bytes: the admin API takes in no larger body
_LARGEST_HERE = 1 << 30
_PATIENCE = 300.0  # seconds; many mistakes are tried on what differs


def check_skew(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME[@V|:label]",
            help="Model, optionally with a version or label (default: its newest version).",
        ),
    ] = "",
    samples: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Samples recorded during training: an .npz file with the arrays raw/INPUT and "
            "tensor/INPUT for each input.",
        ),
    ] = None,
    preprocessing: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="preprocessing.json to check instead of a model; needs no gateway.",
        ),
    ] = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Check that preprocessing produces the same tensors as in training.

    The tensors must be bit-identical. If they differ, the command looks for a common mistake that
    explains the difference, and exits with status 7.

    Example: servegate model skew digits@2 --samples samples.npz

    Example: servegate model skew --preprocessing preprocessing.json --samples samples.npz
    """
    if samples is None or bool(name) == bool(preprocessing):
        raise Invalid(
            "the command needs --samples, and either a model or --preprocessing",
            try_this="servegate model skew digits --samples samples.npz",
        )
    if preprocessing is not None:
        report = _here(preprocessing, samples)
    else:
        report = _asked(name, samples, admin_url, key_file)
    if json:
        as_json(report)
    else:
        for one in report["inputs"]:
            for line in _lines(one):
                print(line)
    if report["skewed"]:
        say("the preprocessing differs between training and serving")
        raise typer.Exit(SKEWED)


def _asked(name: str, samples: Path, url: str | None, key_file: Path | None) -> Any:
    """What the control plane finds."""
    asked = parse_asked(name)
    try:
        data = read_small(samples, _LARGEST_SENT)
    except Invalid as error:
        if samples.is_file() and samples.stat().st_size > _LARGEST_SENT:
            error.try_this = "use fewer samples, or --preprocessing FILE to check on this machine"
        raise
    admin = connect(url, key_file, timeout=_PATIENCE)
    query = f"?version={number_of(admin, asked)}" if asked.selector else ""
    return admin.send_bytes(f"/api/models/{segment(asked.model)}/skew{query}", data)


def _here(preprocessing: Path, samples: Path) -> Any:
    """The same without a gateway."""
    from serve.tensors.preprocessing import parse
    from serve.tensors.skew import skew
    from serve.tensors.skew_samples import read_samples

    try:
        document = jsons.loads(read_small(preprocessing))
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{preprocessing} is not valid JSON", why=str(error)) from error
    if not isinstance(document, dict):
        raise Invalid(f"{preprocessing} does not contain a JSON object")
    return skew(parse(document), read_samples(read_small(samples, _LARGEST_HERE))).to_json()


def _lines(one: Mapping[str, Any]) -> Iterator[str]:
    """One input for people."""
    same = f"{one['equal']} of {one['rows']} samples are bit-identical to the training"
    yield f"{one['name']}: {same}"
    if not one["skewed"]:
        return
    yield f"  first difference: sample {one['first_differing_row']}"
    if one["largest_difference"] is not None:
        yield f"  largest difference: {one['largest_difference']:.6g}"
    for note in one["notes"]:
        yield f"  note: {note}"
    for cause in one["causes"]:
        yield f"  {'cause' if cause['exact'] else 'probable cause'}: {cause['what']}"
        if cause["change"]:
            yield f"    in preprocessing.json: {jsons.dumps(cause['change'])}"
    if not one["causes"]:
        yield "  cause: unknown; no common mistake explains the difference"
