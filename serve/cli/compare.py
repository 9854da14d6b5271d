"""`servegate compare`: two versions with one input, side by side, and whether they agree."""

import base64
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from serve.cli.asked import ModelReference, parse_asked
from serve.cli.client import connect
from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json, say, table
from serve.core.errors import CheckFailed, Invalid

_PATIENCE = 150.0  # seconds: two calls of at most a minute
_CONDITION = re.compile(r"^\s*([a-z_]+)\s*(<=|>=|<|>)\s*([0-9.eE+-]+)\s*\Z")
_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_MEASURES = ("agreement", "equal", "max_abs", "max_rel", "cosine")
_SHOWN_VALUES = 8
Difference = Mapping[str, Any]


def compare(
    a: Annotated[str, typer.Argument(metavar="NAME[@V|:label]", help="First version.")],
    b: Annotated[
        str, typer.Argument(metavar="NAME[@V|:label]", help="Second version of the same model.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]@FILE|random",
            help="Input: an image, .npy, .npz, .json, .csv or .txt file, or random values "
            "(repeatable).",
        ),
    ] = None,
    via: Annotated[str, typer.Option(metavar="http|grpc", help="Protocol of the calls.")] = "http",
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows per call (default: as in the input, or 1 random row). A single input row "
            "is repeated to fill the batch.",
        ),
    ] = None,
    top_k: Annotated[
        int, typer.Option(min=1, max=100, metavar="K", help="Number of highest scores to show.")
    ] = 5,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="Seed for the random values (default: random)."),
    ] = None,
    fail_if: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CONDITION",
            help="Exit with status 7 if the condition holds for an output, for example "
            "'agreement<0.97' or 'max_abs>1e-3' (repeatable). "
            f"Measures: {', '.join(_MEASURES)}.",
        ),
    ] = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Compare the results of two versions for the same input.

    Exits with status 7 if a call fails or a --fail-if condition holds.

    Example: servegate compare digits@1 digits@2 --input @examples/digits/seven.png

    Example: servegate compare digits:stable digits:candidate --input random --batch 64
    --fail-if "agreement<0.97"
    """
    one, other = parse_asked(a), parse_asked(b)
    conditions = [FailCondition.parse(text) for text in fail_if or ()]
    body = _body(one, other, inputs or ["random"])
    body |= {"via": _via(via), "batch": batch, "top_k": top_k, "seed": seed}
    client = connect(admin_url, key_file, timeout=_PATIENCE)
    made = client.post("/api/tries", body)
    link = f"{client.url}/runs/{made['id']}"
    if json:
        as_json(made | {"url": link})
    else:
        show(made)
        say(f"stored: {link}")
    findings = list(_findings(made, conditions))
    if findings:
        raise CheckFailed("the comparison did not pass", findings)


@dataclass(frozen=True, slots=True)
class FailCondition:
    """One that must not hold, such as `agreement<0.97`."""

    measure: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> "FailCondition":
        """Read it; `Invalid` says what can be said."""
        match = _CONDITION.match(text)
        try:
            if match and match[1] in _MEASURES:
                return cls(match[1], match[2], float(match[3]))
        except ValueError:
            pass
        raise Invalid(
            f"--fail-if '{text}' is not a valid condition",
            why=f"expected MEASURE<NUMBER with one of {', '.join(_MEASURES)}",
            try_this='--fail-if "agreement<0.97"',
        )

    def __str__(self) -> str:
        return f"{self.measure}{self.sign}{self.bound:g}"

    def finding(self, output: str, difference: Difference) -> str:
        """Why it fails for an output, or empty; a measure that texts do not have never fails."""
        value = measured(difference, self.measure)
        if value is None or not _OPERATORS[self.sign](value, self.bound):
            return ""
        return f"output '{output}': {self.measure} is {value:.6g} ({self})"


def measured(difference: Difference, measure: str) -> float | None:
    """A measure of an output's difference; None where there is none.

    Agreement is the share of rows that agree by the declared kind of the output; without a
    declaration, of equal values.
    """
    if measure == "agreement" and difference.get("agreement") is None:
        measure = "equal"
    if difference["infinite"] and measure in ("max_abs", "max_rel"):
        return float("inf")
    value = difference[measure]
    return None if value is None else float(value)


def show(made: Mapping[str, Any]) -> None:
    """Both answers side by side, then the differences."""
    for note in made["notes"]:
        say(note)
    sides = made["sides"]
    heads = [f"{made['model']}@{side['version'] or side['asked']}" for side in sides]
    table(("OUTPUT", "", *heads), list(_rows(sides)))
    if made["difference"]:
        rows = [_differing(name, one) for name, one in made["difference"].items()]
        print()
        table(("OUTPUT", "AGREEMENT", "MAX ABS", "MAX REL", "COSINE", "DIFFERENT ROWS"), rows)


def _rows(sides: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, ...]]:
    outputs = [{line["name"]: line for line in side["outputs"]} for side in sides]
    for name in dict.fromkeys(name for known in outputs for name in known):
        lines = [known.get(name) for known in outputs]
        rows = max((len(line["top"]) for line in lines if line), default=0)
        if not rows:
            yield from _by_kind(name, lines)
        for row in range(rows):
            tops = [line["top"][row] if line and row < len(line["top"]) else [] for line in lines]
            for rank in range(max(map(len, tops))):
                cells = (_score(top[rank]) if rank < len(top) else "" for top in tops)
                yield (name, f"row {row} #{rank + 1}", *cells)
    if any(side["error"] for side in sides):
        yield ("error", "", *(side["error"]["what"] if side["error"] else "" for side in sides))
    yield ("latency", "round trip", *(_milliseconds(side) for side in sides))


def _by_kind(name: str, lines: Sequence[Mapping[str, Any] | None]) -> Iterator[tuple[str, ...]]:
    """A line for each row of a declared kind; one with the first values without a declaration."""
    from serve.tensors.output_values import in_words

    count = max((len(line.get("rows", ())) for line in lines if line), default=0)
    if not count:
        yield (name, "", *(_values(line) for line in lines))
    for row in range(count):
        told = (line["rows"][row : row + 1] if line else () for line in lines)
        yield (name, f"row {row}", *("; ".join(in_words(one[0])) if one else "-" for one in told))


def _score(one: Mapping[str, Any]) -> str:
    value = "nan" if one["value"] is None else f"{one['value']:.4g}"
    return f"{one['label'] or one['index']} {value}"


def _values(line: Mapping[str, Any] | None) -> str:
    """The first values, flat."""
    if line is None:
        return "-"
    flat = list(_flat(line["values"]))
    words = [f"{each:.6g}" if isinstance(each, float) else str(each)[:40] for each in flat]
    more = ", …" if len(flat) > _SHOWN_VALUES or line["truncated"] else ""
    return f"{line['datatype']} {line['shape']}: {', '.join(words[:_SHOWN_VALUES])}{more}"


def _flat(values: Any) -> Iterator[Any]:
    if not isinstance(values, list):
        yield values
        return
    for each in values:
        yield from _flat(each)


def _milliseconds(side: Mapping[str, Any]) -> str:
    return "-" if side["seconds"] is None else f"{side['seconds'] * 1000:.1f} ms"


def _differing(name: str, one: Difference) -> tuple[str, ...]:
    if one["refused"]:
        return name, one["refused"], "", "", "", ""
    numbers = [measured(one, measure) for measure in ("agreement", "max_abs", "max_rel", "cosine")]
    rows = ", ".join(map(str, one["differing"]))
    return name, *("-" if each is None else f"{each:.4g}" for each in numbers), rows


def _findings(made: Mapping[str, Any], conditions: Sequence[FailCondition]) -> Iterator[str]:
    for side in made["sides"]:
        if side["error"]:
            yield f"version {side['side'].upper()}: {side['error']['what']}"
    for name, difference in (made["difference"] or {}).items():
        if difference["refused"] and conditions:
            yield f"output '{name}' cannot be compared: {difference['refused']}"
            continue
        for condition in conditions:
            if finding := condition.finding(name, difference):
                yield finding


def _body(a: ModelReference, b: ModelReference, texts: Sequence[str]) -> dict[str, Any]:
    """What `POST /api/tries` takes."""
    from serve.cli.inputs import given_of

    if a.model != b.model:
        raise Invalid(
            f"'{a.model}' and '{b.model}' are different models",
            why="only versions of the same model can be compared",
        )
    inputs: dict[str, Any] = {}
    for name, given in map(given_of, texts):
        if name in inputs:
            raise Invalid(
                f"--input sets '{name}' twice" if name else "two --input options have no name",
                try_this="pass --input NAME=@FILE for each input",
            )
        data = base64.b64encode(given.data).decode()
        inputs[name] = {"form": given.form.value, "data": data, "name": given.name[-300:]}
    return {"model": a.model, "a": a.selector, "b": b.selector, "inputs": inputs}


def _via(word: str) -> str:
    if word not in ("http", "grpc"):
        raise Invalid(f"--via cannot be '{word}'", why="expected http or grpc")
    return word
