"""A try as it is kept and told: what was asked, what each side answered, how they differ.

JSON has neither NaN nor infinities: None stands for them. Times of calls are seconds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class InputLine:
    """One input as it was sent. `form` is its input format; `preview`: a picture is available."""

    name: str
    datatype: str
    shape: list[int]
    form: str
    preview: bool


@dataclass(frozen=True, slots=True)
class TryFailure:
    """The error of a side, in the form of all errors of this API."""

    code: str
    what: str
    why: str
    try_this: str


@dataclass(frozen=True, slots=True)
class Latency:
    """The duration of a call and its parts, in seconds; null if unknown.

    `round_trip` is measured for this call. The other parts come from Triton's statistics of the
    version, over `calls` calls. If `exact`, this was the only call. Otherwise they are averages,
    and the time of gateway and network is unknown.
    """

    round_trip: float
    gateway_and_network: float | None = None
    queue: float | None = None
    compute_input: float | None = None
    compute_infer: float | None = None
    compute_output: float | None = None
    exact: bool = False
    calls: int = 0


@dataclass(frozen=True, slots=True)
class Top:
    """One of the highest scores of a row; `label` is empty if the class has no label text."""

    index: int
    label: str
    value: float | None


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One output. `values` are nested lists; `truncated`: some values are left out.

    `top` has the highest classes of each of the first rows, and is empty if the output holds no
    classes. `min`, `max` and `mean` are over the finite values, and null for texts. `kind` is the
    declared kind, or empty; `rows` describes the first rows by this kind. `preview`: a picture of
    the first row is available.
    """

    name: str
    datatype: str
    shape: list[int]
    values: Any
    truncated: bool
    top: list[list[Top]]
    min: float | None
    max: float | None
    mean: float | None
    kind: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    preview: bool = False


@dataclass(frozen=True, slots=True)
class TrySide:
    """One side. `asked` is the requested version number or label, or empty.

    `version` is the version that executed the call, and `by` the reason for this choice. `flavour`
    is the flavour that the replicas have loaded, if the version has several. If there is an
    `error`, the other fields are empty.
    """

    side: str
    asked: str
    version: str
    by: str
    generation: int | None
    flavour: str
    error: TryFailure | None
    seconds: float | None
    latency: Latency | None
    outputs: list[OutputLine]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The differences of an output between A and B; null if not calculated.

    `infinite`: `max_abs` is null because only one side has NaN or infinity at some place.
    `refused` is the reason why the outputs cannot be compared. For an output with a declared
    `kind`, `agreement` is the share of rows that agree by this kind, `differing` lists the first
    others, and `measures` are those of the kind.
    """

    equal: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    infinite: bool = False
    refused: str = ""
    kind: str = ""
    agreement: float | None = None
    differing: list[int] = field(default_factory=list)
    measures: dict[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Try:
    """One run. `at` is a Unix time in seconds. `difference` is by output, and null for one side."""

    id: str
    model: str
    at: float
    author: str
    via: str
    seed: int
    inputs: list[InputLine]
    notes: list[str]
    sides: list[TrySide]
    difference: dict[str, OutputDifference] | None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "Try":
        """Read what `to_json` gave."""
        difference = page["difference"]
        return cls(
            **{
                **page,
                "inputs": [InputLine(**one) for one in page["inputs"]],
                "sides": [_side(one) for one in page["sides"]],
                "difference": difference
                and {name: _difference(one) for name, one in difference.items()},
            }
        )


@dataclass(frozen=True, slots=True)
class TryLine:
    """One run in a list. `versions` are in the order of the sides, empty for a failed side.

    `agrees`: the outputs agree by their declared kinds; without a declaration, all values are
    equal; null if nothing was compared.
    """

    id: str
    model: str
    at: float
    author: str
    asked: list[str]
    versions: list[str]
    agrees: bool | None


def line_of(one: Try) -> TryLine:
    """What a list shows of a try."""
    return TryLine(
        id=one.id,
        model=one.model,
        at=one.at,
        author=one.author,
        asked=[side.asked for side in one.sides],
        versions=[side.version for side in one.sides],
        agrees=None if one.difference is None else all(map(_agrees, one.difference.values())),
    )


def _agrees(difference: OutputDifference) -> bool:
    share = difference.equal if difference.agreement is None else difference.agreement
    return share == 1


def _difference(page: Mapping[str, Any]) -> OutputDifference:
    known = {one.name for one in fields(OutputDifference)}
    return OutputDifference(**{name: value for name, value in page.items() if name in known})


def _side(page: Mapping[str, Any]) -> TrySide:
    error, latency = page["error"], page["latency"]
    return TrySide(
        **{
            **page,
            "error": error and TryFailure(**error),
            "latency": latency and Latency(**latency),
            "outputs": [
                OutputLine(**{**one, "top": [[Top(**each) for each in row] for row in one["top"]]})
                for one in page["outputs"]
            ],
        }
    )
