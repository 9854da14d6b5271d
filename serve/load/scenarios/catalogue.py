"""The scenarios that there are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from serve.core.errors import Invalid
from serve.load.scenarios import (
    batch_sweep,
    cold_start,
    direct,
    killing,
    overload,
    smoke,
    soak,
    splitting,
)
from serve.load.scenarios.scenario import Scenario

_ALL = (
    Scenario("smoke", "every protocol for 10 s at a low rate: is everything answered?", smoke.play),
    Scenario("soak", "a steady rate for 10 min: does memory or latency grow?", soak.play),
    Scenario(
        "overload",
        "in steps to twice the sustained rate, and back: is too much refused quickly?",
        overload.play,
    ),
    Scenario(
        "split",
        "another split under load, and back: do the calls follow at once?",
        splitting.play,
        changes="the split of the model, for a third of the run",
    ),
    Scenario(
        "kill",
        "a replica dies under load: who notices, and when is it back?",
        killing.play,
        changes="kills one Triton; what started it has to start it again",
    ),
    Scenario(
        "cold-start",
        "the model is loaded while calls arrive: when is it at its speed?",
        cold_start.play,
        changes="unloads the model everywhere, and loads it again",
    ),
    Scenario(
        "batch-sweep",
        "rows per second with batches of 1, 2, 4, … rows",
        batch_sweep.play,
    ),
    Scenario(
        "direct",
        "the same calls to the gateway and to one Triton, in turns: what does it add?",
        direct.play,
    ),
)
SCENARIOS: Mapping[str, Scenario] = MappingProxyType({each.name: each for each in _ALL})


def scenario_of(name: str) -> Scenario:
    """The one with this name; `Invalid` says which there are."""
    if name not in SCENARIOS:
        raise Invalid(f"there is no scenario '{name}'", why=f"there are: {', '.join(SCENARIOS)}")
    return SCENARIOS[name]
