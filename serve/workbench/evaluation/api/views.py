"""The JSON of evaluations: what is asked, how far one is, and its rows."""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from serve.workbench.evaluation.evaluation import Evaluation, EvaluationRequest, EvaluationState
from serve.workbench.evaluation.results import Bucket, OutputKind

Word = Annotated[str, Field(max_length=200)]


class EvaluationBody(BaseModel):
    """An evaluation of one or two versions on a dataset, through the gateway.

    `a` and `b` are numbers or labels. The default of `a` is the version with the most traffic.
    `output` is the output to evaluate if the model has several. Gates are conditions such as
    `accuracy(b)>=0.95`, `accuracy(b).low>=0.9`, `agreement>=0.97`, `drop<=0.5pp`, `p99(b)<20ms`.
    `limit` evaluates only this number of rows, spread evenly.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {
                    "model": "digits",
                    "dataset": "held-out",
                    "a": "1",
                    "b": "2",
                    "gates": ["accuracy(b)>=0.95", "drop<=0.5pp"],
                }
            ]
        },
    )
    model: str = Field(max_length=300)
    dataset: Word
    a: Word = ""
    b: Word | None = None
    revision: int | None = Field(default=None, ge=1)
    via: Literal["http", "grpc"] = "http"
    concurrency: int = Field(default=4, ge=1, le=64)
    batch: int = Field(default=1, ge=1, le=1024)
    output: Annotated[str, Field(max_length=1000)] | None = None
    gates: list[Word] = Field(default=[], max_length=50)
    limit: int | None = Field(default=None, ge=1)


class EvaluationBegun(BaseModel):
    """The queued evaluation."""

    id: str
    state: EvaluationState


class EvaluationLine(BaseModel):
    """One evaluation with its options and progress.

    `digest` identifies the dataset's revision. `failed` is the number of processed rows without a
    response from one side. `why` is the reason for a failure. `passed` is true if all gates passed,
    and null without gates or before the end. `kind` is the kind of the output: classes, values or
    numbers.
    """

    id: str
    state: EvaluationState
    model: str
    a: int
    b: int | None
    asked_a: str
    asked_b: str
    dataset: str
    revision: int
    digest: str
    output: str
    kind: OutputKind
    via: str
    concurrency: int
    batch: int
    limit: int | None
    gates: list[str]
    total: int
    done: int
    failed: int
    passed: bool | None
    why: str
    notes: list[str]
    author: str
    created: datetime
    begun: datetime | None
    ended: datetime | None


class EvaluationView(EvaluationLine):
    """One evaluation with its report, null before the first row is answered.

    The report has, for `a` and `b`: how many rows failed, accuracy with its 95 % interval (Wilson),
    macro F1, calibration, latency in milliseconds; for numbers `mae` and `rmse`. `compared` has
    the agreement, the drop in accuracy from A to B (Newcombe), McNemar's exact p and the pairs;
    then come classes, confusion matrices, slices and gates. All are over the rows that every side
    has answered.
    """

    report: dict[str, Any] | None


class GateView(BaseModel):
    """A gate, its measured number (null if there is none), and the verdict."""

    text: str
    value: float | None
    passed: bool


class ToldView(BaseModel):
    """The result of one side for a row, or its error."""

    predicted: str
    score: float | None
    confidence: float | None
    milliseconds: float
    error: str


class ResultView(BaseModel):
    """One row. `image` is the URL of its picture, or empty."""

    row: int
    label: str
    name: str
    slices: dict[str, str]
    bucket: Bucket
    a: ToldView
    b: ToldView | None
    image: str


class ResultsView(BaseModel):
    """Some of the `total` rows that match the filter."""

    total: int
    rows: list[ResultView]


def request_of(body: EvaluationBody) -> EvaluationRequest:
    """What somebody wants to know."""
    return EvaluationRequest(
        model=body.model,
        dataset=body.dataset,
        a=body.a,
        b=body.b or "",
        revision=body.revision or 0,
        via=body.via,
        concurrency=body.concurrency,
        batch=body.batch,
        output=body.output or "",
        gates=tuple(body.gates),
        limit=body.limit,
    )


def fields_of(one: Evaluation) -> dict[str, Any]:
    """The fields of an `EvaluationLine`."""
    request = one.request
    return {
        "id": one.id,
        "state": one.state,
        "model": request.model,
        "a": one.version_a,
        "b": one.version_b,
        "asked_a": request.a,
        "asked_b": request.b,
        "dataset": request.dataset,
        "revision": request.revision,
        "digest": one.digest,
        "output": one.output,
        "kind": one.kind,
        "via": request.via,
        "concurrency": request.concurrency,
        "batch": request.batch,
        "limit": request.limit,
        "gates": list(request.gates),
        "total": one.total,
        "done": one.done,
        "failed": one.failed,
        "passed": one.passed,
        "why": one.why,
        "notes": list(one.notes),
        "author": one.author,
        "created": _time(one.created),
        "begun": None if one.begun is None else _time(one.begun),
        "ended": None if one.ended is None else _time(one.ended),
    }


def _time(at: float) -> datetime:
    return datetime.fromtimestamp(at, UTC)
