"""Shares of a model's calls as pictures and lists show them: weights made parts of one."""

from collections.abc import Mapping
from dataclasses import dataclass

TONES = 5  # colours that are told apart; a sixth version has the first one's again


@dataclass(frozen=True, slots=True)
class VersionShare:
    """One version's part: where it begins and how long it is, of 1. `tone` is its colour."""

    version: int
    start: float
    length: float
    tone: int


def shares(split: Mapping[int, int]) -> tuple[VersionShare, ...]:
    """The parts of a split that get calls, by version; nothing when nothing gets any."""
    total = sum(split.values())
    made: list[VersionShare] = []
    start = 0.0
    for version, weight in sorted(split.items()):
        if weight > 0:
            made.append(VersionShare(version, start, weight / total, len(made) % TONES))
            start += weight / total
    return tuple(made)
