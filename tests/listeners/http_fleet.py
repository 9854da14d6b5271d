"""Two replicas that hold two models, asked together: their scripts, and what an answer says."""

from __future__ import annotations

import json
from typing import Any

from builders import snapshot, target, view
from listeners.http_clients import Answer
from listeners.http_messages import reply, request
from listeners.http_replicas import Received, Script, answering

OURS = view(target(1, "a", "b"), target(2, "b", physical="m--0a1b2c3d"), labels={"stable": 2})
TWO = snapshot(OURS, view(target(1, "b", model="n"), name="n"), generation=7)
INDEX, ALL, OF_M = "/v2/repository/index", "/v2/models/stats", "/v2/models/m/stats"


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *headers, "", ""]).encode()


def index(*headers: str, body: bytes = b"") -> bytes:
    return request(body, *headers, path=INDEX)


def says(value: Any, status: int = 200) -> Script:
    return answering(reply(json.dumps(value).encode(), status=status))


def counted(*entries: tuple[str, str, int]) -> Script:
    return says({"model_stats": [entry(*one) for one in entries]})


def entry(name: str, version: str, count: int) -> dict[str, Any]:
    return {"name": name, "version": version, "inference_count": count}


def indexed(*entries: tuple[str, str, str]) -> Script:
    return says([{"name": n, "version": v, "state": s} for n, v, s in entries])


async def breaks(call: Received) -> None:
    await call.read()
    call.reset()


def counts(answer: Answer) -> list[tuple[str, str, int]]:
    assert answer.status == 200, answer
    return [tuple(one.values()) for one in json.loads(answer.body)["model_stats"]]


def states(answer: Answer) -> list[tuple[str, ...]]:
    assert answer.status == 200, answer
    return [tuple(one.values()) for one in json.loads(answer.body)]
