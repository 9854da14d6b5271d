"""The arithmetic of a hint in words and numbers, from what the gateway tells of it.

a model's demand   calls per second ÷ what a replica bears, and what is reckoned on top
wanted             the demand of all, and some to spare: `capacity/scaling/policy.py`
changes            the demand at which the number is another, and what each reason asks for
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from serve.capacity.scaling.policy import HELD, borne, enough_for
from serve.capacity.scaling.signals import Code
from serve.capacity.scaling.texts import replicas
from serve.cli.hints.view import Page, allowed, head, number
from serve.control.batching.texts import per_cent, seconds

_LITTLE = 0.005  # of a demand: no word is made of it
_NEEDS = {
    Code.STEP: "the next steps add the rest",
    Code.WAITING: f"the number falls after {HELD:.0f} s, when no replica is starting",
    Code.KEPT: "the number falls when the last hour no longer justifies these replicas",
    Code.FALLING: "the number falls further, one step per minute",
    Code.BACKLOG: "the number falls when no calls are waiting",
    Code.MISSED: "the assumed capacity is lower until calls are fast again; "
    "servegate batching show MODEL shows where they wait",
    Code.NOT_GPU_BOUND: "more replicas do not help while the GPUs are idle; "
    "servegate batching show MODEL shows where calls wait",
    Code.BATCHING: "larger batches help more than replicas: servegate batching tune MODEL",
    Code.UNKNOWN: "needs a few dozen executions with at least two batch sizes",
    Code.NOT_HELD: "ends when the replicas have loaded the model: servegate replica ls",
    Code.STALE: "ends with newer readings: servegate replica ls",
    Code.INVALID: "ends with valid readings: servegate replica ls",
    Code.RESTARTED: "ends by itself",
    Code.LEAST: "change the bound with servegate hints set {pool} --least N",
    Code.MOST: "change the bound with servegate hints set {pool} --most N",
    Code.BUDGET: "change the bound with servegate hints set {pool} --gpu-budget N",
    Code.IDLE: "the next call wakes the pool",
    Code.WAKING: "ends when a replica is ready",
}


@dataclass(frozen=True, slots=True)
class HintPart:
    """Of one model, in replicas that would be busy all the time; None where that is not known.

    `arrivals`: its calls of the last 15 s ÷ a replica's capacity. `more`: what is reckoned on top,
    below 0 where calls that only scatter are smoothed.
    """

    model: str
    arrivals: float | None
    more: float | None


@dataclass(frozen=True, slots=True)
class Edges:
    """Demands at which another number would be wanted; None where there is none.

    `fewer_at_once`: whether the number falls at once, because it has not been followed yet.
    """

    more: float | None
    fewer: float | None
    fewer_at_once: bool


def parts(page: Page) -> tuple[HintPart, ...]:
    """What each model's demand is made of."""
    return tuple(_part(model) for model in page["models"])


def edges(page: Page) -> Edges:
    """Where the number would change, within what is allowed."""
    desired, bounds = page["desired"], page["bounds"]
    there = page["ready"] + page["starting"]
    most = min(one for one in (bounds["most"], bounds["budget"]) if one is not None)
    is_new = desired > there
    more = borne(max(desired, there)) if max(desired, there) < most else None
    fewer = borne(desired - 1) if desired > max(1, bounds["least"]) else None
    return Edges(more, fewer, is_new)


def document(page: Page) -> dict[str, Any]:
    """For programs: the hint, and what is reckoned from it."""
    return {
        "hint": dict(page),
        "parts": [asdict(one) for one in parts(page)],
        "edges": asdict(edges(page)),
        "changes": list(changes(page)),
    }


def lines(page: Page) -> Iterator[str]:
    """For people."""
    yield from head(page)
    yield ""
    yield from _seen(page)
    yield ""
    yield from _reckoned(page)
    yield ""
    yield "what would change the hint:"
    yield from (f"  {one}" for one in changes(page))


def changes(page: Page) -> Iterator[str]:
    """What would make it another number."""
    found = edges(page)
    if page["demand"] is not None:
        if found.more is not None:
            yield f"more replicas: demand above {found.more:.3g}{_in_calls(page, found.more)}"
        if found.fewer is not None:
            yield _fewer(page, found.fewer, at_once=found.fewer_at_once)
    for one in page["reasons"]:
        needs = _NEEDS.get(one["code"])
        if needs is not None:
            yield f"{one['code']}: {needs.format(pool=page['pool'])}"


def _fewer(page: Page, below: float, *, at_once: bool) -> str:
    rarely = "unless more were needed repeatedly in the last hour"
    if not at_once and page["demand"] < below:
        return f"fewer replicas: when demand was below {below:.3g} for {HELD:.0f} s, {rarely}"
    lasting = "" if at_once else f" for {HELD:.0f} s, {rarely}"
    return f"fewer replicas: demand below {below:.3g}{_in_calls(page, below)}{lasting}"


def _in_calls(page: Page, demand: float) -> str:
    """How far that is, in calls of the model that is called most."""
    known = [one for one in page["models"] if one["demand"] and one["capacity"]]
    if not known:
        return ""
    model = max(known, key=lambda one: one["demand"])
    calls = (demand - page["demand"]) * model["capacity"]
    return f" ({number(abs(calls))} calls/s {'more' if calls > 0 else 'fewer'} of {model['name']})"


def _part(model: Page) -> HintPart:
    demand, capacity = model["demand"], model["capacity"]
    if demand is None or not capacity:
        return HintPart(model["name"], None, None)
    arrivals = model["lately"] / capacity
    return HintPart(model["name"], arrivals, demand - arrivals)


# --- what was seen -------------------------------------------------------------------------------


def _seen(page: Page) -> Iterator[str]:
    yield "readings:"
    if not page["models"]:
        yield "  no models in this pool"
    for model in page["models"]:
        yield (
            f"  {model['name']}: {number(model['lately'])} calls/s in the last 15 s, "
            f"{number(model['recent'])} in the last 5 s, {number(model['waiting'])} waiting; "
            f"loaded on {model['holding']} of {page['ready']} replicas"
        )
        told = "; ".join(_how_calls_fare(model))
        if told:
            yield f"    {told}"
    yield from _gpus(page)
    if page["cold_start"] is not None:
        yield f"  a cold start takes {seconds(page['cold_start'])}"


def _how_calls_fare(model: Page) -> Iterator[str]:
    if model["missed"] is not None and model["limit"] is not None:
        may = f" (allowed: {per_cent(model['allowed'])})" if model.get("allowed") else ""
        yield f"{per_cent(model['missed'])} of the calls exceeded {seconds(model['limit'])}{may}"
    if model["pressure"] is not None:
        yield f"queue time is {model['pressure']:.2g} times the compute time"
    if model["occupancy"] is not None:
        yield f"batches are {per_cent(model['occupancy'])} full"


def _gpus(page: Page) -> Iterator[str]:
    if page["utilization"] is None:
        yield "  GPUs: utilisation unknown; the hint does not need it"
    else:
        yield f"  GPUs: utilisation {per_cent(page['utilization'])}, used only as evidence"
    for name, one in page["gpus"].items():
        told = ", ".join(_gpu(one))
        yield f"    {name}: {told or 'no readings'} ({one.get('source', 'unknown')})"


def _gpu(one: Page) -> Iterator[str]:
    for key, words in (
        ("utilization", "utilisation"),
        ("sm_active", "SMs active"),
        ("tensor_active", "tensor cores active"),
    ):
        if one.get(key) is not None:
            yield f"{words} {per_cent(one[key])}"
    if one.get("memory_used") is not None and one.get("memory_total"):
        yield f"{one['memory_used'] / 1e9:.3g} of {one['memory_total'] / 1e9:.3g} GB"
    if one.get("power") is not None:
        yield f"{one['power']:.0f} W"
    if one.get("mig"):
        yield "MIG"


# --- what was made of it -------------------------------------------------------------------------


def _reckoned(page: Page) -> Iterator[str]:
    yield "demand, in fully busy replicas:"
    for model, part in zip(page["models"], parts(page), strict=True):
        yield from _demand_of(model, part)
    demand = page["demand"]
    if demand is None:
        yield "  total: unknown, so the number stays as it is"
        return
    if len(page["models"]) != 1:
        yield f"  total: {demand:.3g}"
    full = enough_for(demand)
    yield "replicas:"
    yield f"  {demand:.3g} plus spare capacity: {replicas(full)}{_each(demand, full)}"
    there = page["ready"] + page["starting"]
    yield f"  {page['ready']} ready + {page['starting']} starting = {there} existing"
    yield f"  bounds {allowed(page['bounds'])}: {page['desired']} desired"


def _each(demand: float, full: int) -> str:
    return f", each busy {per_cent(demand / full)} of the time" if full else ""


def _demand_of(model: Page, part: HintPart) -> Iterator[str]:
    name = model["name"]
    if part.arrivals is None or part.more is None:
        if model["capacity"]:
            sustained = number(model["capacity"])
            yield f"  {name}: not calculated; a replica sustains {sustained} calls/s"
        else:
            yield f"  {name}: the capacity of a replica is not known yet"
        return
    yield (
        f"  {name}: {number(model['lately'])} calls/s ÷ {number(model['capacity'])} per replica "
        f"= {part.arrivals:.3g}"
    )
    if part.more > _LITTLE * model["demand"]:
        yield f"    + {part.more:.2g} for {_on_top(model)} = {model['demand']:.3g}"
    elif part.more < -_LITTLE * model["demand"]:
        yield f"    − {-part.more:.2g}, because the rate is smoothed = {model['demand']:.3g}"


def _on_top(model: Page) -> str:
    """What may be reckoned beside the calls of the last 15 s."""
    causes = []
    if model["recent"] > model["lately"]:
        causes.append("a rise in the last 5 s")
    if model["waiting"]:
        causes.append(f"{number(model['waiting'])} waiting calls")
    causes.append("random variation or slow calls")
    return ", ".join(causes)
