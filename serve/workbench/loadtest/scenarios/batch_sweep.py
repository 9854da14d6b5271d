"""Batch sweep: how many rows per second does the model do in batches of 1, 2, 4, … rows?

Each size is a closed loop of a few users, who keep the model busy without a queue that grows. The
interval is Student's over the run's seconds, which are taken for independent: it is narrow.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev

from serve.core.errors import Invalid
from serve.workbench.loadtest.observations.questions import Questions
from serve.workbench.loadtest.observer import LoadTarget
from serve.workbench.loadtest.plan import Closed
from serve.workbench.loadtest.reports.amounts import rate_text
from serve.workbench.loadtest.reports.comparison import student
from serve.workbench.loadtest.reports.report import LoadRun, Sweep
from serve.workbench.loadtest.scenarios.scenario import ScenarioOutcome, ScenarioStage
from serve.workbench.loadtest.scenarios.tallies import (
    ANSWERED,
    failed_sentence,
    failures,
    is_stopped,
)

_SECONDS = 8.0  # for one size
_WARM_UP = 1.0
_USERS = 8
_LARGEST = 1024


async def play(stage: ScenarioStage) -> ScenarioOutcome:
    """A run for each size."""
    sizes = sizes_to(await largest_batch(stage.target))
    seconds = stage.seconds / len(sizes) if stage.seconds else _SECONDS
    runs: list[LoadRun] = []
    for size in sizes:
        plan = stage.plan(
            closed=Closed(_USERS), seconds=max(seconds, 3.0), batch=size, warm_up=_WARM_UP
        )
        runs.append(await stage.perform(plan, label=f"batch {size}"))
        if is_stopped(runs[-1]):
            return ScenarioOutcome("Batch sweep", tuple(runs))
        stage.say(f"batch {size}: {rate_text(rows_rate(runs[-1])[0])} rows")
    return conclude(sizes, runs)


def conclude(sizes: tuple[int, ...], runs: list[LoadRun]) -> ScenarioOutcome:
    """The sweep, and which size is the best; passed if no call failed."""
    rates = [rows_rate(run) for run in runs]
    means = [mean for mean, _ in rates]
    best = max(range(len(sizes)), key=lambda place: means[place])
    findings = [
        f"batches of {sizes[best]} give the highest throughput: {rate_text(means[best])} "
        f"rows, {means[best] / means[0]:.1f} times as many as batches of {sizes[0]}"
    ]
    findings += [
        f"batch {size}: {failed_sentence(list(run.record.windows.values()))}"
        for size, run in zip(sizes, runs, strict=True)
        if failures(run.record.windows.values())
    ]
    sweep = Sweep(
        "rows in a batch",
        "rows per second",
        tuple(map(float, sizes)),
        tuple(means),
        tuple(mean - off for mean, off in rates),
        tuple(mean + off for mean, off in rates),
    )
    return ScenarioOutcome(
        "Batch sweep: rows per second by batch size",
        tuple(runs),
        tuple(findings),
        len(findings) == 1,
        sweep,
    )


def rows_rate(run: LoadRun) -> tuple[float, float]:
    """Rows in whole answers per second, and half of the 95 % interval of that."""
    by_second = [
        sum(cell.rows for key, cell in window.cells.items() if key.outcome in ANSWERED)
        for second, window in run.record.windows.items()
        if second < math.floor(run.seconds)
    ]
    if len(by_second) < 2:
        return (fmean(by_second) if by_second else 0.0), 0.0
    spread = stdev(by_second) / math.sqrt(len(by_second))
    return fmean(by_second), student(len(by_second) - 1) * spread


def sizes_to(largest: int) -> tuple[int, ...]:
    """1, 2, 4, … and the largest itself."""
    largest = min(largest, _LARGEST)
    return (*(2**n for n in range(largest.bit_length()) if 2**n < largest), largest)


async def largest_batch(target: LoadTarget) -> int:
    """What the model's configuration allows; `Invalid` where it has no batches."""
    questions = Questions(target.http_url, trust=target.trust)
    try:
        config = await questions.json(f"{target.model_url}/config", target.key)
    finally:
        await questions.close()
    if not isinstance(config, dict):
        raise Invalid(
            f"the configuration of {target.model} cannot be read", why="; ".join(questions.problems)
        )
    largest = int(config.get("max_batch_size", 0))
    if largest < 2:
        raise Invalid(
            f"{target.model} does not support batches", why=f"its max_batch_size is {largest}"
        )
    return largest
