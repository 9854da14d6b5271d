"""The scenarios that there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from serve.core.errors import Invalid
from serve.workbench.loadtest.scenarios import (
    batch_sweep,
    cold_start,
    direct,
    kill,
    overload,
    smoke,
    soak,
    split,
)
from serve.workbench.loadtest.scenarios.scenario import Scenario

_ALL = (
    Scenario(
        "smoke", "every protocol for 10 s at a low rate: are all responses correct?", smoke.play
    ),
    Scenario("soak", "a steady rate for 10 min: does memory or latency grow?", soak.play),
    Scenario(
        "overload",
        "in steps to twice the sustainable rate, and back: is the excess refused "
        "quickly, and does the gateway recover?",
        overload.play,
    ),
    Scenario(
        "split",
        "changes the traffic split under load, and restores it: do calls follow immediately?",
        split.play,
        changes="changes the model's traffic split for a third of the run",
    ),
    Scenario(
        "kill",
        "a replica dies under load: what do users notice, and how long is the recovery?",
        kill.play,
        changes="kills one Triton, which its supervisor has to restart",
    ),
    Scenario(
        "cold-start",
        "loads the model while calls arrive: when is full speed reached?",
        cold_start.play,
        changes="unloads the model from all replicas, and loads it again",
    ),
    Scenario(
        "batch-sweep",
        "rows per second with batches of 1, 2, 4, … rows",
        batch_sweep.play,
    ),
    Scenario(
        "direct",
        "the same calls to the gateway and to one Triton, in turns: what does the gateway add?",
        direct.play,
    ),
)
SCENARIOS: Mapping[str, Scenario] = MappingProxyType({each.name: each for each in _ALL})


def scenario_of(name: str) -> Scenario:
    """The one with this name; `Invalid` says which there are."""
    if name not in SCENARIOS:
        raise Invalid(f"unknown scenario '{name}'", why=f"allowed values: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
