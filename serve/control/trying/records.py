"""A try as it is kept and told: what was asked, what each side answered, how they differ.

JSON has neither NaN nor infinities: None stands for them. Times of calls are seconds.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class InputLine:
    """One input as it was sent. `form` is how it was given; `preview`: there is a picture of it."""

    name: str
    datatype: str
    shape: list[int]
    form: str
    preview: bool


@dataclass(frozen=True, slots=True)
class Failure:
    """What was answered instead: the four parts of every error here."""

    code: str
    what: str
    why: str
    try_this: str


@dataclass(frozen=True, slots=True)
class Latency:
    """Where the time of a call went, in seconds; None is not known.

    `round_trip` is always of this call. The others are from what Triton has counted of the version
    meanwhile, `calls` of them: with `exact` that was this call alone, else they are averages, and
    what gateway and network took cannot be told.
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
    """One of the highest scores of a row; `label` is empty where there is no text for it."""

    index: int
    label: str
    value: float | None


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One output. `values` are nested lists, `truncated` when they are not all of it.

    `top` are the highest scores of each of the first rows; empty where the output is no scores.
    `min`, `max` and `mean` are of its finite values; None for texts.
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


@dataclass(frozen=True, slots=True)
class Side:
    """One side. `asked` is a number, a label, or empty; `version` what answered, and `by` why.

    `flavour` is the form in which the replicas hold that version, where it has several. With an
    `error` there is nothing else.
    """

    side: str
    asked: str
    version: str
    by: str
    generation: int | None
    flavour: str
    error: Failure | None
    seconds: float | None
    latency: Latency | None
    outputs: list[OutputLine]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How much an output differs, see `tensors/comparison.py`; None is not told.

    `infinite`: `max_abs` is None because one side has NaN or an infinity where the other has not.
    `top_1_differs` are the first rows whose highest score is elsewhere. `refused` says why two
    outputs cannot be compared.
    """

    equal: float | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    cosine: float | None = None
    top_1: float | None = None
    infinite: bool = False
    top_1_differs: list[int] | None = None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Try:
    """All of it. `at` is seconds of the epoch. `difference` is by output, None for one side."""

    id: str
    model: str
    at: float
    author: str
    via: str
    seed: int
    inputs: list[InputLine]
    notes: list[str]
    sides: list[Side]
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
                and {name: OutputDifference(**one) for name, one in difference.items()},
            }
        )


@dataclass(frozen=True, slots=True)
class TryLine:
    """One try in a list. `versions` answered, in the order of the sides, empty for an error.

    `agrees`: both have their highest score at the same places, or equal values where there are no
    scores; None where nothing was compared.
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
    share = difference.equal if difference.top_1 is None else difference.top_1
    return share == 1


def _side(page: Mapping[str, Any]) -> Side:
    error, latency = page["error"], page["latency"]
    return Side(
        **{
            **page,
            "error": error and Failure(**error),
            "latency": latency and Latency(**latency),
            "outputs": [
                OutputLine(**{**one, "top": [[Top(**each) for each in row] for row in one["top"]]})
                for one in page["outputs"]
            ],
        }
    )
