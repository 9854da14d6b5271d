"""Hints as a sample tells them: numbers of pools that become columns, and what is said now.

pools   {"default": {"desired": 3, "ready": 2, …, "models": {"digits": {"demand": 1.6, …}}}}
hints   [{"kind": "scaling", "about": "default", "what": "3 replicas, 1 more than there are",
          "confidence": "high", "reasons": [{"code": "demand", "text": …}], "fix": ""}, …]
"""

import heapq
from collections.abc import Iterable, Sequence

from serve.capacity.scaling.signals import ModelSignal
from serve.capacity.scaling.texts import asked
from serve.control.batching.hints import BatchingHint
from serve.control.live.samples import Advised, Tree
from serve.control.scaling.told import PoolNumbers

MOST_POOLS = 50  # nobody looks at more, and each costs everybody who watches


def advised(told: Sequence[PoolNumbers], batching: Iterable[BatchingHint], now: float) -> Advised:
    """How many replicas pools should have, and how versions could be batched.

    Of very many pools those that most replicas are wanted for. `now` is in seconds of the epoch.
    """
    shown = told
    if len(told) > MOST_POOLS:
        found = heapq.nsmallest(MOST_POOLS, told, key=lambda one: (-one.hint.desired, one.pool))
        shown = sorted(found, key=lambda one: one.pool)
    return Advised(
        {one.pool: _pool(one, now) for one in shown},
        (*map(_scaling, shown), *map(_batching, batching)),
    )


def _pool(told: PoolNumbers, now: float) -> Tree:
    hint, needs = told.hint, dict(told.hint.needs)
    return {
        "desired": hint.desired,
        "ready": hint.ready,
        "starting": hint.starting,
        "demand": hint.demand,
        "utilization": told.signal.utilization,
        "age": max(0.0, now - told.at),
        "models": {one.name: _model(one, needs.get(one.name)) for one in told.signal.models},
    }


def _model(signal: ModelSignal, demand: float | None) -> Tree:
    return {
        "demand": demand,
        "calls": signal.lately,
        "waiting": signal.waiting,
        "capacity": signal.capacity,
    }


def _scaling(told: PoolNumbers) -> Tree:
    hint = told.hint
    return {
        "kind": "scaling",
        "about": hint.pool,
        "what": asked(hint.desired, hint.ready, hint.starting),
        "confidence": hint.confidence,
        "reasons": [{"code": one.code.value, "text": one.text} for one in hint.reasons],
        "fix": "",
    }


def _batching(hint: BatchingHint) -> Tree:
    return {
        "kind": "batching",
        "about": f"{hint.model}@{hint.version}",
        "what": "",
        "confidence": "high",
        "reasons": [{"code": hint.hint, "text": hint.why}],
        "fix": hint.fix,
    }
