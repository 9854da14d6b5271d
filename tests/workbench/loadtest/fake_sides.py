"""A gateway's other side by script: what a path answers, asked on a real socket."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cli.http_servers import Request, answering

GPU = """\
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1000000000
# TYPE nv_gpu_power_usage gauge
nv_gpu_power_usage{gpu_uuid="GPU-1"} 250
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="digits",version="1"} 7
"""


class Side:
    """Answers by path: a text, JSON, or None for nothing good.

    `asked` are paths and keys of questions, `changes` paths and bodies of changes. A change of a
    path that has a JSON object is merged into it; `refuses` are paths where none is taken.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str]] = []
        self.changes: list[tuple[str, Any]] = []
        self.refuses: set[str] = set()
        self.url = ""

    def respond(self, request: Request) -> tuple[int, Any]:
        """The status and the body."""
        path = request.path.partition("?")[0]
        if request.method == "GET":
            self.asked.append((path, request.headers.get("authorization", "")))
            found = self.answers.get(path)
            body = found.encode() if isinstance(found, str) else found
            return 503 if found is None else 200, body
        body = json.loads(request.body)
        self.changes.append((path, body))
        if path in self.refuses:
            return 409, {"what": "refused", "why": "by script", "try_this": "", "code": "x"}
        if isinstance(self.answers.get(path), dict):
            self.answers[path] |= body
        return 200, {"generation": 10 + len(self.changes), "in_force": True}


@contextmanager
def side(**answers: Any) -> Iterator[Side]:
    """One that listens inside; answers may be changed at any time."""
    told = Side(dict(answers))
    with answering(told.respond) as told.url:
        yield told


def stats(version: str = "1", count: int = 0, *, batch: int = 1, queue: int = 0) -> dict[str, Any]:
    """Statistics of Triton for a version that has made `count` executions of `batch` rows.

    A request takes 1 ms, of which `queue` nanoseconds in the queue and half a millisecond in the
    model.
    """

    def pair(nanoseconds: int) -> dict[str, int]:
        return {"count": count, "ns": count * nanoseconds}

    parts = {"success": 1_000_000, "queue": queue, "compute_infer": 500_000}
    parts |= dict.fromkeys(("compute_input", "compute_output"), 100_000)
    return {
        "name": "digits",
        "version": version,
        "last_inference": 5,
        "inference_count": count * batch,
        "execution_count": count,
        "inference_stats": {name: pair(each) for name, each in parts.items()}
        | {"fail": {"count": 0, "ns": 0}},
        "batch_stats": [{"batch_size": batch, "compute_infer": pair(500_000)}] if count else [],
        "memory_usage": [],
    }


def page(*entries: dict[str, Any]) -> dict[str, Any]:
    """What Triton answers for these versions."""
    return {"model_stats": list(entries)}


def gateway_text(calls: int = 0, seconds: float = 0.0, **more: Any) -> str:
    """The gateway's metrics: calls of digits, beside those of another model."""
    call = 'model="digits",protocol="http",route="split",version="1"'
    lines = [
        "# TYPE servegate_call_seconds histogram",
        f'servegate_call_seconds_bucket{{le="+Inf",{call}}} {calls}',
        f"servegate_call_seconds_count{{{call}}} {calls}",
        f"servegate_call_seconds_sum{{{call}}} {seconds}",
        'servegate_call_seconds_count{model="other",version="1"} 1000',
        'servegate_call_seconds_sum{model="other",version="1"} 1000',
        "# TYPE servegate_errors_total counter",
        f'servegate_errors_total{{model="digits",error="overloaded"}} {more.get("shed", 0)}',
        f'servegate_retries_total{{model="digits",reason="refused"}} {more.get("retries", 0)}',
        f'servegate_stream_messages_total{{model="digits"}} {more.get("messages", 0)}',
        'servegate_calls_in_flight{source="worker-0"} 2',
        'servegate_calls_in_flight{source="worker-1"} 3',
        'servegate_replica_calls_in_flight{replica="local-0",source="worker-0"} 2',
        'servegate_replica_calls_in_flight{replica="local-0",source="worker-1"} 3',
        f'servegate_replica_usable{{replica="local-0",source="worker-0"}} {more.get("usable", 1)}',
        f'servegate_process_cpu_seconds_total{{source="worker-0"}} {more.get("cpu", 1.0)}',
        f'servegate_process_resident_bytes{{source="worker-0"}} {more.get("resident", 5e7)}',
        'servegate_process_proportional_bytes{source="worker-0"} 3e7',
    ]
    return "\n".join(lines) + "\n"


def replica_page(state: str = "up", **more: Any) -> dict[str, Any]:
    """One replica of `/api/replicas`, on a machine that is not this one."""
    return {
        "name": "local-0",
        "address": "gpu-1:8000:8001:8002",
        "pool": "default",
        "state": state,
        "why": "",
        "held": {"digits": [1, 2]},
        "pending": 4,
        "cpu_utilization": 0.25,
        **more,
    }


def revision(number: int, at: str = "2026-11-22T10:00:00Z") -> dict[str, Any]:
    """One line of `/api/history`."""
    return {
        "revision": number,
        "at": at,
        "kind": "route",
        "key": "digits",
        "summary": f"split.1: 90 → {number}",
    }
