"""One conversion as a job: what was asked, how far it is, and its record in the store.

| state      | what is done                                | then                                  |
|------------|---------------------------------------------|---------------------------------------|
| queued     | it waits for its turn, the oldest is first  | running, cancelled                    |
| running    | a child process converts and judges         | publishing, failed, refused, cancelled|
| publishing | the result goes the way of every pushed one | done, failed                          |
| done       | its version is published                    |                                       |
| failed     | there is no version, `fault` says why       | queued                                |
| refused    | the same, by the gate: there is a report    | queued                                |
| cancelled  | somebody has stopped it                     | queued                                |

A control plane that starts puts a job that was running back into the queue, once; after a second
time it has failed. The record's kind is `conversion`, its key the job's id.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from serve.control.decisions import Decisions
from serve.control.stored_conversions import CONVERSION, ENDED
from serve.workbench.conversion.request import ConversionRequest

_NO_TEXTS: Mapping[str, str] = MappingProxyType({})
_NO_TIMES: Mapping[str, float] = MappingProxyType({})


class JobState(StrEnum):
    """The state of a job."""

    QUEUED = "queued"
    RUNNING = "running"
    PUBLISHING = "publishing"
    DONE = "done"
    FAILED = "failed"
    REFUSED = "refused"
    CANCELLED = "cancelled"


AGAIN = frozenset({JobState.FAILED, JobState.REFUSED, JobState.CANCELLED})


@dataclass(frozen=True, slots=True)
class ConversionOrder:
    """What somebody wants: the source of an upload as a version of `model`.

    `request` has no source; its samples are paths within the upload. `labels`, `live` and `again`
    are those of `Ask`.
    """

    upload: str
    model: str
    request: ConversionRequest
    labels: tuple[str, ...] = ()
    live: bool = False
    again: bool = False


@dataclass(frozen=True, slots=True)
class Job:
    """One conversion. `times`: when it reached each state, seconds of the epoch.

    `author` has asked for it last. `starts` counts how often it began to run since then. `fault`
    has the fields of a `failed` event, empty while nothing is wrong. `papers` is the digest of the
    blob with its events and its report, once it has ended.
    """

    id: str
    asked: ConversionOrder
    author: str
    state: JobState = JobState.QUEUED
    starts: int = 0
    version: int | None = None
    fault: Mapping[str, str] = field(default_factory=lambda: _NO_TEXTS)
    papers: str = ""
    has_report: bool = False
    created: float = 0.0
    times: Mapping[str, float] = field(default_factory=lambda: _NO_TIMES)
    etag: str = ""  # of the record; not part of the body

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.state in ENDED

    def moved(self, state: JobState, at: float, **changes: Any) -> "Job":
        """The same job in another state, reached at `at`."""
        times = MappingProxyType({**self.times, state.value: at})
        return replace(self, state=state, times=times, **changes)

    def to_body(self) -> dict[str, Any]:
        """What the store keeps."""
        return {
            "upload": self.asked.upload,
            "model": self.asked.model,
            "request": self.asked.request.to_json(),
            "labels": list(self.asked.labels),
            "live": self.asked.live,
            "again": self.asked.again,
            "author": self.author,
            "state": self.state.value,
            "starts": self.starts,
            "version": self.version,
            "fault": dict(self.fault),
            "papers": self.papers,
            "has_report": self.has_report,
            "created": self.created,
            "times": dict(self.times),
        }


def job_of(identity: str, body: Mapping[str, Any], etag: str = "") -> Job:
    """The job in a stored body."""
    asked = ConversionOrder(
        body["upload"],
        body["model"],
        ConversionRequest.from_json(body["request"]),
        tuple(body["labels"]),
        body["live"],
        body["again"],
    )
    return Job(
        identity,
        asked,
        body["author"],
        JobState(body["state"]),
        starts=body["starts"],
        version=body["version"],
        fault=MappingProxyType(dict(body["fault"])),
        papers=body["papers"],
        has_report=body["has_report"],
        created=body["created"],
        times=MappingProxyType(dict(body["times"])),
        etag=etag,
    )


def jobs_in(decisions: Decisions) -> tuple[Job, ...]:
    """All jobs, in the order in which they were asked for."""
    found = (
        job_of(key, entry.body, entry.etag)
        for (kind, key), entry in decisions.entries.items()
        if kind == CONVERSION
    )
    return tuple(sorted(found, key=lambda job: (job.created, job.id)))
