"""How a version is batched, for people: a few lines, readable without colour."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from serve.cli.answers import bar
from serve.control.batching.texts import seconds

_MOST = 16  # bars; more sizes are put together
Page = Mapping[str, Any]


def lines(page: Page, *, blocks: bool) -> Iterator[str]:
    """What holds, what was seen, and what may be wrong; `blocks`: bars of block characters."""
    yield from _configured(page)
    window = page["window"]
    if window["calls"] or window["executions"] or window["rejected"]:
        yield ""
        yield from _seen(page, window)
        if window["batches"] and not _is_ensemble(page):
            yield ""
            yield from _batches(page, window["batches"], blocks=blocks)
    else:
        yield ""
        yield _idle(page, window)
    if page["parts"] is not None:
        yield ""
        yield from _parts(page["parts"])
    yield from _advice(page)
    yield from _hints(page["hints"])


def _configured(page: Page) -> Iterator[str]:
    many = page["instances"]
    told = f"{many} instance{'' if many == 1 else 's'} on each replica"
    facts = [f"max_batch_size {page['max_batch_size']}"] if page["config"] else []
    if page["instances_told"] and not _is_ensemble(page):
        facts.append(told)
    replicas = " ".join(page["replicas"])
    why = f": {page['reason']}" if page["reason"] else ""
    facts.append(f"on {replicas}" if replicas else f"not loaded{why}")
    yield f"{page['model']}@{page['version']}: {', '.join(facts)}"
    if not page["config"]:
        yield "  configuration unknown: it has no config.pbtxt, and no replica has loaded it"
    for one in page["meaning"]:
        yield f"  {one['field']}: {one['text']}"
    if page["revised"]:
        yield f"  changed after the push: {', '.join(page['revised'])}"
    if page["tuned"]:
        yield f"  tuned for: {_tuned(page['tuned'])}"
    if page["shared_with"]:
        others = ", ".join(map(str, page["shared_with"]))
        yield f"  shares its configuration with: {others} (Triton name {page['name']})"


def _tuned(tuned: Page) -> str:
    parts = [str(tuned["objective"])] if tuned.get("objective") else []
    if isinstance(tuned.get("rate"), int | float):
        parts.append(f"up to {tuned['rate']:.4g} calls/s per replica")
    return ", ".join(parts) or "an unknown objective"


def _idle(page: Page, window: Page) -> str:
    if not page["replicas"]:
        return "no statistics: no replica has loaded this version"
    if not window["replicas"]:
        return "no statistics yet: they need two readings of a replica"
    return f"no calls in the last {window['seconds']:.0f} s"


def _seen(page: Page, window: Page) -> Iterator[str]:
    many = len(window["replicas"])
    where = f"{many} replica{'' if many == 1 else 's'}"
    yield (
        f"last {window['seconds']:.0f} s, {where}: {window['calls']:,} calls, "
        f"{window['rate']:.4g} calls/s, {window['pending']} waiting now"
    )
    ends = [(window["failures"], "failed"), (window["rejected"], "rejected by the queue")]
    told = [f"{count:,} {what}" for count, what in ends if count]
    if told:
        yield f"  {', '.join(told)}"
    asked = window["hits"] + window["misses"]
    if asked:
        yield f"  response cache: {window['hits']:,} hits of {asked:,} lookups"
    took = "" if window["took"] is None else f"; {seconds(window['took'])} as clients see it"
    if _is_ensemble(page):
        yield f"  a call takes {seconds(window['whole'])} in Triton{took}"
        return
    yield (
        f"  a call takes {seconds(window['queue'])} in the queue + {seconds(window['compute'])} of "
        f"compute = {seconds(window['whole'])} in Triton{took}"
    )
    if window["busy"] is None:
        yield "  batch sizes unknown: the backend does not report executions"
        return
    busy = f"  instances are busy {window['busy']:.0%} of the time"
    if window["occupancy"] is not None:
        busy += (
            f"; a batch has {window['rows_per_execution']:.1f} of {page['max_batch_size']} rows "
            f"(occupancy {window['occupancy']:.0%})"
        )
    rows = window["rows_per_call"]
    yield f"{busy}; a call has {rows:.4g} row{'' if rows == 1 else 's'}"


def _batches(page: Page, batches: Sequence[Page], *, blocks: bool) -> Iterator[str]:
    yield "batches, by rows:"
    groups = _grouped(batches)
    widest = max(len(name) for name, *_ in groups)
    most = max(share for _, _, share, _ in groups)
    counts = max(len(f"{executions:,}") for _, executions, _, _ in groups)
    for name, executions, share, mean in groups:
        drawn = bar(share / most, blocks=blocks)
        numbers = f"{executions:>{counts},}  {share:6.1%}  {seconds(mean):>8}"
        yield f"  {name:>{widest}}  {numbers}  {drawn}".rstrip()
    service = page["service"]
    if service is None:
        return
    yield (
        f"  an execution takes about {seconds(service['fixed'])} + {seconds(service['per_row'])} "
        f"per row"
    )
    if service["allowed"] is not None:
        yield f"  the objective {page['objective']} allows batches of {service['allowed']} rows"


def _grouped(batches: Sequence[Page]) -> list[tuple[str, int, float, float]]:
    """Name, executions, share and mean seconds; neighbouring sizes together if there are many."""
    each = -(-len(batches) // _MOST)
    groups = []
    for start in range(0, len(batches), each):
        some = batches[start : start + each]
        first, last = some[0]["rows"], some[-1]["rows"]
        executions = sum(one["executions"] for one in some)
        mean = sum(one["seconds"] * one["executions"] for one in some) / executions
        name = str(first) if first == last else f"{first}-{last}"
        groups.append((name, executions, sum(one["share"] for one in some), mean))
    return groups


def _parts(parts: Page) -> Iterator[str]:
    yield "steps:" if parts["steps"] else "steps: unknown"
    names = [f"{one['path']} {one['asked']}" for one in parts["steps"]]
    width = max(map(len, names), default=0)
    for name, one in zip(names, parts["steps"], strict=True):
        if not one["calls"]:
            yield f"  {name:<{width}}  no calls"
            continue
        share = "" if one["share"] is None else f"{one['share']:.0%} of the total, "
        others = f", {one['others']:,} other calls" if one["others"] else ""
        yield (
            f"  {name:<{width}}  {share}queue {seconds(one['queue'])}, compute "
            f"{seconds(one['compute'])}, batches of {one['rows_per_execution']:.1f}; "
            f"{one['calls']:,} calls{others}"
        )
    yield f"  ({parts['limit']})"


def _advice(page: Page) -> Iterator[str]:
    calls = page["window"]["calls"] + page["window"]["rejected"]
    if _is_ensemble(page):
        return
    yield ""
    if not page["is_enough"]:
        yield f"advice: too few calls so far ({calls:,} of {page['enough']})"
        return
    yield "advice:" if page["advice"] else "advice: none"
    for one in page["advice"]:
        yield f"  {one['field']}: {one['why']}"
        yield f"    try: {one['fix']}  [{one['rule']}]"


def _hints(hints: Sequence[Page]) -> Iterator[str]:
    if hints:
        yield ""
        yield "hints:"
    for one in hints:
        since = datetime.fromtimestamp(one["since"], UTC)
        yield f"  {one['why']} (since {since:%Y-%m-%d %H:%M}Z)"
        yield f"    try: {one['fix']}  [{one['hint']}]"


def _is_ensemble(page: Page) -> bool:
    return page["parts"] is not None and bool(page["parts"]["kind"] == "ensemble")
