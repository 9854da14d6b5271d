"""One evaluation as a value: what was asked, how far it is, and its record in the storage.

| state       | what is done                                        | then                         |
|-------------|-----------------------------------------------------|------------------------------|
| queued      | it waits for its turn, the oldest is first          | running, cancelled           |
| running     | rows are asked                                      | done, failed, cancelled      |
| done        | every row was asked; those that failed are counted  | queued, where some failed    |
| failed      | it cannot go on: `why` says so                      | queued                       |
| cancelled   | somebody has stopped it                             | queued                       |
| interrupted | the control plane has stopped while it was running  | queued                       |

Whoever resumes one queues it again: it goes on with the rows that have no answer yet.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from serve.workbench.evaluation.results import OutputKind


class EvaluationState(StrEnum):
    """The state of an evaluation."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


WAITING = frozenset({EvaluationState.QUEUED, EvaluationState.RUNNING})


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """What somebody wants to know. `a` and `b` are numbers or labels; empty: nobody has said.

    `revision` is of the dataset, the newest if it is 0; `limit`: so many rows, spread evenly.
    """

    model: str
    dataset: str
    a: str = ""
    b: str = ""
    revision: int = 0
    via: str = "http"
    concurrency: int = 4
    batch: int = 1
    output: str = ""
    gates: tuple[str, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluation. Times are seconds of the epoch; `begun` and `ended` of the last run.

    `digest` is that of the dataset's revision, `version_b` None where only A is asked. `done` rows
    of `total` were asked, `failed` of them without an answer of every side. `passed` says whether
    all gates did, once it is done. `notes` are what people should know.
    """

    id: str
    request: EvaluationRequest
    author: str
    version_a: int
    version_b: int | None
    output: str
    kind: OutputKind
    digest: str
    total: int
    created: float
    state: EvaluationState = EvaluationState.QUEUED
    done: int = 0
    failed: int = 0
    begun: float | None = None
    ended: float | None = None
    why: str = ""
    passed: bool | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_waiting(self) -> bool:
        """Whether something more happens by itself."""
        return self.state in WAITING

    @property
    def two(self) -> bool:
        """Whether there are two versions."""
        return self.version_b is not None

    def changed(self, **changes: Any) -> "Evaluation":
        """The same, but for these fields."""
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        """What the storage keeps."""
        return asdict(self)

    @classmethod
    def from_json(cls, page: Mapping[str, Any]) -> "Evaluation":
        """What `to_json` has made."""
        asked = page["request"]
        request = EvaluationRequest(**{**asked, "gates": tuple(asked["gates"])})
        kind, state, notes = (
            OutputKind(page["kind"]),
            EvaluationState(page["state"]),
            tuple(page["notes"]),
        )
        return cls(**{**page, "request": request, "kind": kind, "state": state, "notes": notes})


def spread(rows: int, limit: int | None) -> list[int]:
    """The numbers of the rows that are asked: all, or so many at equal distances."""
    if limit is None or limit >= rows:
        return list(range(rows))
    return [index * rows // limit for index in range(limit)]
