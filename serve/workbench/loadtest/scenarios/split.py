"""Split: another split comes into force under load, and goes again. Do the calls follow at once?

Each answer tells the generation of the snapshot that decided. So the calls of each split are known
to the last one, and their shares can be held against the weights as binomials.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from serve.core.errors import Invalid
from serve.workbench.loadtest.observed_run import Action
from serve.workbench.loadtest.plan import Arrivals
from serve.workbench.loadtest.record import CallKey
from serve.workbench.loadtest.reports.amounts import share_text
from serve.workbench.loadtest.reports.report import LoadRun
from serve.workbench.loadtest.scenarios.admin import Admin, putting_back
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import failed_sentence, failures, is_stopped

_SECONDS = 60.0
_RATE = 100.0
_DEVIATIONS = 4.0  # standard deviations that a share may be off
_FOLLOWING = 1.0  # seconds after a change in which the old split may still decide
Split = Mapping[int, int]


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """One run; the split changes at a third of it, and back at two thirds."""
    seconds, model = stage.seconds or _SECONDS, stage.target.model
    async with Admin(stage.target, reason="load test: split") as admin:
        before, other = await _splits(admin, model)
        changes = _Changes(admin, before, other)
        times = (seconds / 3, seconds * 2 / 3)
        stage.say(
            f"the traffic split of {model} is {shown(before)}; it changes to "
            f"{shown(other)} after {times[0]:.0f} s, and back to {shown(before)} after "
            f"{times[1]:.0f} s"
        )
        plan = stage.plan(arrivals=Arrivals(stage.rate or _RATE), seconds=seconds)
        by_hand = admin.command(f"servegate route set {model} {shown(before)}")
        async with putting_back(
            changes.put_back, what=f"the traffic split of {model}", by_hand=by_hand, say=stage.say
        ) as undone:
            run = await stage.perform(
                plan,
                label="split change",
                actions=(
                    Action(times[0], f"split {shown(other)}", changes.change),
                    Action(times[1], f"split {shown(before)}", changes.change_back),
                ),
                objective=stage.objective,
            )
    findings, follows = judge(run, (before, other, before), changes.generations, times)
    windows = list(run.record.windows.values())
    passed = follows and not failures(windows) and not undone
    return ScenarioOutcome(
        "Split: the traffic split changes under load",
        (run,),
        (*undone, *findings, failed_sentence(windows)),
        None if is_stopped(run) and not undone else passed,
    )


class _Changes:
    """The two changes, and the generations from which on they were in force."""

    def __init__(self, admin: Admin, before: Split, other: Split) -> None:
        self._admin = admin
        self._before = before
        self._other = other
        self.generations: list[int] = []

    def __repr__(self) -> str:
        return f"<_Changes {self.generations}>"

    async def change(self) -> str:
        """To the other split."""
        self.generations.append(await self._admin.divide(self._other))
        return f"split {shown(self._other)} in force"

    async def change_back(self) -> str:
        """To the first one."""
        self.generations.append(await self._admin.divide(self._before))
        return f"split {shown(self._before)} in force"

    async def put_back(self) -> None:
        """The first one, if it is not in force."""
        found = await self._admin.route()
        if _split(found["split"]) != self._before:
            await self._admin.divide(self._before)


def another(before: Split, ready: set[int]) -> Split:
    """A split that is clearly different: the weights turned round, or half and half."""
    weights = {version: before.get(version, 0) for version in sorted(ready | set(before))}
    turned = dict(zip(weights, reversed(weights.values()), strict=True))
    if turned != weights:
        return {version: weight for version, weight in turned.items() if weight}
    versions = list(weights)
    return {versions[0]: 90 * (len(versions) - 1), **dict.fromkeys(versions[1:], 10)}


def judge(
    run: LoadRun, splits: tuple[Split, ...], generations: list[int], times: tuple[float, float]
) -> tuple[tuple[str, ...], bool]:
    """Whether the shares were those of each split, and the calls followed in time."""
    counts: list[Counter[int]] = [Counter() for _ in splits]
    last_old = [-1.0, -1.0]
    for second, key, cell in run.record.cells():
        if key.by != "split" or not key.version.isdecimal():
            continue
        phase = sum(generation_of(key) >= each for each in generations)
        counts[phase][int(key.version)] += cell.calls
        for number, _ in enumerate(times[phase:], phase):
            last_old[number] = max(last_old[number], second)
    if len(generations) < 2:
        return ("the traffic split was not changed twice; see the problems of the run",), False
    told = [_share_sentence(split, found) for split, found in zip(splits, counts, strict=True)]
    late = [last - at for last, at in zip(last_old, times, strict=True) if last - at > _FOLLOWING]
    if late:
        sentence = f"the old traffic split was still used {max(late):.0f} s after a change"
    else:
        sentence = "every call followed the new traffic split within a second of its change"
    return (sentence, *(text for text, _ in told)), not late and all(good for _, good in told)


def generation_of(key: CallKey) -> int:
    """Of the snapshot that decided a call; 0 where none was told."""
    for part in key.decision.split(";"):
        name, _, value = part.strip().partition("=")
        if name == "generation" and value.isdecimal():
            return int(value)
    return 0


def shown(split: Split) -> str:
    """As the command line writes it: `1=90 2=10`."""
    return " ".join(f"{version}={weight}" for version, weight in sorted(split.items()))


def _share_sentence(split: Split, counts: Counter[int]) -> tuple[str, bool]:
    calls = counts.total()
    if not calls:
        return f"no call was routed by the traffic split {shown(split)}", False
    good, parts = True, []
    for version in sorted({*split, *counts}):
        wanted = split.get(version, 0) / sum(split.values())
        share = counts[version] / calls
        off = _DEVIATIONS * math.sqrt(wanted * (1 - wanted) / calls)
        good = good and abs(share - wanted) <= off
        parts.append(f"{share_text(share)} of the calls went to version {version}")
    verdict = "" if good else ", which is not by chance"
    text = f"with the traffic split {shown(split)}, {' and '.join(parts)}{verdict}"
    return f"{text} ({calls} calls)", good


async def _splits(admin: Admin, model: str) -> tuple[Split, Split]:
    route, found = await admin.route(), await admin.model()
    if not route["routed"]:
        raise Invalid(
            f"{model} has no route of its own",
            why="the scenario could not restore it, because a route cannot be unset",
            try_this=admin.command(f"servegate route set {model} VERSION=WEIGHT VERSION=WEIGHT"),
        )
    ready = {int(one["version"]) for one in found["versions"] if one["state"] == "ready"}
    before = _split(route["split"])
    if len(ready | set(before)) < 2:
        raise Invalid(
            f"only one version of {model} is ready", why="a traffic split needs at least two"
        )
    return before, another(before, ready)


def _split(page: Mapping[str, int]) -> Split:
    return {int(version): int(weight) for version, weight in page.items()}
