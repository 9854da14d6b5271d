"""The table of edits: what each thing that people may say changes in the fields of a configuration.

An edit is a function of the fields, in their JSON form, and of what was said; what that is called
may be told it as well, and is a flag of `servegate batching set` otherwise. They follow one another
in the order of the table. Saying something of dynamic batching turns it on.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from serve.core.errors import Invalid
from serve.triton.edits import values

if TYPE_CHECKING:
    from serve.triton.config import Configuration

Fields = dict[str, Any]
Edit = Callable[..., None]  # the fields, what was said, and perhaps what that is called


def _set_largest(found: Fields, largest: int) -> None:
    found["max_batch_size"] = largest


def _set_dynamic(found: Fields, is_on: bool) -> None:
    if is_on:
        _dynamic(found)
    else:
        found.pop("dynamic_batching", None)


def _dynamic(found: Fields) -> Fields:
    """The field, made where there is none: saying something of it turns it on."""
    return _inside(found, "dynamic_batching")


def _inside(found: Fields, name: str) -> Fields:
    inside = found.get(name)
    if not isinstance(inside, dict):
        inside = found[name] = {}
    return inside


def _set_delay(found: Fields, text: str, called: str = "--delay") -> None:
    delay = values.microseconds(text, called)
    _dynamic(found)["max_queue_delay_microseconds"] = delay


def _set_preferred(found: Fields, text: str, called: str = "--preferred") -> None:
    _dynamic(found)["preferred_batch_size"] = values.sizes(text, called)


def _set_ordering(found: Fields, is_kept: bool) -> None:
    _dynamic(found)["preserve_ordering"] = is_kept


def _set_levels(found: Fields, levels: int) -> None:
    """The lowest one is that of all other calls unless it is said. None without levels."""
    batching = _dynamic(found)
    if not levels:
        for name in ("priority_levels", "default_priority_level", "priority_queue_policy"):
            batching.pop(name, None)
        return
    batching["priority_levels"] = levels
    default = int(batching.get("default_priority_level", 0))
    if not 1 <= default <= levels:
        batching["default_priority_level"] = levels


def _set_default_level(found: Fields, level: int) -> None:
    _dynamic(found)["default_priority_level"] = level


def _set_queue(found: Fields, text: str) -> None:
    put_queue(found, values.policy(text, "--queue"))


def put_queue(found: Fields, said: Fields | None) -> None:
    """What is said of the queue; what is not said stays, and None is nothing at all."""
    _put_policy(_dynamic(found), "default_queue_policy", said)


def _set_priority_queues(found: Fields, texts: Iterable[str]) -> None:
    for text in texts:
        level, said = values.prioritised(text, "--priority-queue")
        _put_policy(_inside(_dynamic(found), "priority_queue_policy"), str(level), said)


def _put_policy(inside: Fields, name: str, said: Fields | None) -> None:
    if said is None:
        inside.pop(name, None)
    else:
        inside[name] = {**inside.get(name, {}), **said}


def _set_instances(found: Fields, texts: list[str], called: str = "--instances") -> None:
    """As many groups as were said. Where there were as many, each keeps what is not said of it."""
    if texts == [values.NONE]:
        found.pop("instance_group", None)
        return
    groups = [values.group(text, called) for text in texts]
    before = found.get("instance_group", [])
    if len(before) != len(groups):
        before = [{} for _ in groups]
    found["instance_group"] = [
        _regrouped(old, new) for old, new in zip(before, groups, strict=True)
    ]


def _regrouped(old: Fields, new: values.InstanceGroup) -> Fields:
    group = {**old, "count": new.count}
    if new.kind:
        group = {**group, "kind": new.kind, "gpus": list(new.gpus)}
    return group


def _limiters(found: Fields, flag: str) -> list[Fields]:
    """The rate limiter of every group of instances."""
    groups = found.get("instance_group")
    if not groups:
        raise Invalid(
            f"{flag} needs an instance group",
            why="a rate limiter belongs to an instance group, and the configuration has none",
            try_this=f"--instances 1 {flag} …",
        )
    return [_inside(group, "rate_limiter") for group in groups]


def _set_rate_limit(found: Fields, texts: list[str]) -> None:
    if texts == [values.NONE]:
        for group in found.get("instance_group", ()):
            group.pop("rate_limiter", None)
        return
    resources = [values.resource(text, "--rate-limit") for text in texts]
    for limiter in _limiters(found, "--rate-limit"):
        limiter["resources"] = resources


def _set_rate_priority(found: Fields, priority: int) -> None:
    for limiter in _limiters(found, "--rate-priority"):
        limiter["priority"] = priority


def _set_cache(found: Fields, is_on: bool) -> None:
    if is_on:
        found["response_cache"] = {"enable": True}
    else:
        found.pop("response_cache", None)


def _set_sequence(found: Fields, strategy: str) -> None:
    """The other strategy goes, and its delay comes along."""
    if strategy not in ("direct", "oldest"):
        raise Invalid(
            f"--sequence: unknown value '{strategy}'",
            why="the values are direct and oldest",
            try_this="--sequence oldest, or --field sequence_batching=null",
        )
    batching = _inside(found, "sequence_batching")
    other = batching.pop("oldest" if strategy == "direct" else "direct", {})
    delay = other.get("max_queue_delay_microseconds")
    now = _inside(batching, strategy)
    if delay is not None:
        now.setdefault("max_queue_delay_microseconds", delay)


def _set_sequence_idle(found: Fields, text: str) -> None:
    idle = values.microseconds(text, "--sequence-idle")
    _sequences(found, "--sequence-idle")["max_sequence_idle_microseconds"] = idle


def _set_candidates(found: Fields, count: int) -> None:
    batching = _sequences(found, "--candidates")
    if "oldest" not in batching:
        raise Invalid(
            "--candidates is only for the strategy oldest",
            why="with direct, each sequence has its own slot",
            try_this=f"--sequence oldest --candidates {count}",
        )
    _inside(batching, "oldest")["max_candidate_sequences"] = count


def _set_sequence_delay(found: Fields, text: str) -> None:
    batching = _sequences(found, "--sequence-delay")
    strategy = "oldest" if "oldest" in batching else "direct"
    delay = values.microseconds(text, "--sequence-delay")
    _inside(batching, strategy)["max_queue_delay_microseconds"] = delay


def _sequences(found: Fields, flag: str) -> Fields:
    if "sequence_batching" not in found:
        raise Invalid(
            f"{flag} is only for models with sequences",
            why="the configuration has no sequence_batching",
            try_this=f"--sequence oldest {flag} …",
        )
    return _inside(found, "sequence_batching")


EDITS: Mapping[str, Edit] = MappingProxyType(  # by the names of the CLI's `Edits`
    {
        "largest": _set_largest,
        "dynamic": _set_dynamic,
        "delay": _set_delay,
        "preferred": _set_preferred,
        "ordering": _set_ordering,
        "levels": _set_levels,
        "default_level": _set_default_level,
        "queue": _set_queue,
        "priority_queues": _set_priority_queues,
        "instances": _set_instances,
        "rate_limit": _set_rate_limit,
        "rate_priority": _set_rate_priority,
        "cache": _set_cache,
        "sequence": _set_sequence,
        "sequence_idle": _set_sequence_idle,
        "candidates": _set_candidates,
        "sequence_delay": _set_sequence_delay,
    }
)
OF_DYNAMIC = (  # what would turn on what `--off` turns off
    *("delay", "preferred", "ordering", "levels", "default_level", "queue", "priority_queues"),
)


def to_send(base: "Configuration", found: Fields) -> Fields:
    """The whole fields to send: those that differ from what a version came with; None removes one.

    `found` is what it shall be run by. `Invalid` names what cannot be so.
    """
    from serve.triton.config_revisions import FIELDS, fields_of, revised

    whole: Fields = dict.fromkeys(FIELDS)
    wanted, own = fields_of(revised(base, whole | found)), fields_of(base)
    return {name: wanted.get(name) for name in FIELDS if wanted.get(name) != own.get(name)}
