"""A gateway that holds one version with a serving configuration, and a script of what happens."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from cli.http_servers import Request, answering

from serve.triton.canonical import canonical_text
from serve.triton.config import parse
from serve.triton.config_revisions import revised

BASE = (
    'backend: "onnxruntime" max_batch_size: 8 '
    'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] } '
    'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } dynamic_batching { }'
)
PATH = re.compile(r"/api/models/m/versions/(\d+)/serving-configuration\Z")
WARNING = {
    "rule": "preferred-caps",
    "severity": "warning",
    "field": "dynamic_batching.preferred_batch_size",
    "why": "batches rarely exceed 4 rows, although max_batch_size is 8",
    "fix": "add 8, or set max_batch_size: 4",
}
FOREIGN = {"rule": "graph-level", "severity": "error", "field": "optimization.graph.level"}
FOREIGN |= {
    "why": "there is no level 7",
    "fix": "use 0 (all), -1 (basic), 1 (extended) or 2 (none)",
}


def change(phase: str, outcome: str = "", told: str = "") -> dict[str, Any]:
    """How far a change is."""
    return {"phase": phase, "outcome": outcome, "told": told}


def replicas(**states: str) -> dict[str, Any]:
    """How far replicas are; `failed: why` has a reason."""
    parted = {name: state.partition(": ") for name, state in states.items()}
    return {name: {"state": state, "why": why} for name, (state, _, why) in parted.items()}


@dataclass(slots=True)
class Gateway:
    """`steps` are what GETs tell after the change, one after the other; the last one stays.

    `refusal` is the status and the error that the PUT answers; `dry_refusal` that of a dry run.
    """

    etag: str = '"12"'
    findings: Sequence[Mapping[str, Any]] = (WARNING,)
    fields: Mapping[str, Any] = field(default_factory=dict)
    shared_with: Sequence[int] = ()
    steps: Sequence[Mapping[str, Any]] = ({"change": change("done", "applied")},)
    refusal: tuple[int, Mapping[str, str]] | None = None
    dry_refusal: tuple[int, Mapping[str, str]] | None = None
    puts: list[tuple[str, Any, str]] = field(default_factory=list)  # query, body, If-Match
    reads: int = 0
    is_changed: bool = False

    def view(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        base = parse(BASE)
        told: dict[str, Any] = {
            "model": "m",
            "version": 3,
            "shared_with": list(self.shared_with),
            "base": canonical_text(base),
            "config": canonical_text(revised(base, fields)),
            "fields": dict(fields),
            "etag": self.etag,
            "findings": list(self.findings),
            "replicas": replicas(a="applied"),
            "change": None,
        }
        if self.is_changed:
            told |= self.steps[min(self.reads, len(self.steps) - 1)]
            self.reads += 1
        return told

    def answer(self, method: str, target: str, body: Any, if_match: str) -> tuple[int, Any]:
        """What is answered to one request."""
        parts = urlsplit(target)
        if parts.path == "/api/models/m":
            return 200, {"labels": {"stable": 2}, "versions": [{"version": 1}, {"version": 3}]}
        if not PATH.match(parts.path):
            return 404, error("not_found", f"there is no {parts.path}")
        if method == "GET":
            return 200, self.view(self.fields)
        self.puts.append((parts.query, body, if_match))
        is_dry = "dry_run=true" in parts.query
        refusal = self.dry_refusal if is_dry else self.refusal
        if refusal:
            return refusal
        if is_dry:
            return 200, self.view(body["fields"])
        self.fields, self.is_changed = body["fields"], True
        return 202, self.view(self.fields)


def error(code: str, what: str, why: str = "") -> dict[str, str]:
    """The body of a refusal."""
    return {"code": code, "what": what, "why": why, "try_this": ""}


def serving(gateway: Gateway) -> AbstractContextManager[str]:
    """Its URL while it runs."""

    def answer(request: Request) -> tuple[int, Any]:
        body = json.loads(request.body) if request.body else None
        etag = request.headers.get("if-match", "")
        return gateway.answer(request.method, request.path, body, etag)

    return answering(answer)
