"""Rules about what a Triton must be started for: its rate limiter, and its response cache."""

from collections import Counter
from typing import Any

from serve.triton.lint.subject import Finding, Findings, Subject


def resource_twice(subject: Subject) -> Findings:
    """A resource that an instance group asks for twice.

    Triton 2.51 loads it; one of the counts holds.
    """
    for index, group in enumerate(subject.message.instance_group):
        names = Counter((each.name, getattr(each, "global")) for each in _resources(group))
        for (name, _), count in names.items():
            if count > 1:
                yield Finding(
                    f"instance_group[{index}].rate_limiter",
                    f"resource '{name}' is there {count} times",
                    "each resource once",
                )


def resource_both(subject: Subject) -> Findings:
    """A resource that is the whole Triton's and each device's at the same time.

    Triton: `is present as both global and device-specific resource in the model configuration`.
    """
    kinds: dict[str, set[bool]] = {}
    for group in subject.message.instance_group:
        for each in _resources(group):
            kinds.setdefault(each.name, set()).add(getattr(each, "global"))
    for name, found in kinds.items():
        if len(found) > 1:
            yield Finding(
                "instance_group.rate_limiter",
                f"resource '{name}' is global here and a device's there",
                "global: true everywhere, or nowhere",
            )


def resource_empty(subject: Subject) -> Findings:
    """A resource without a name, or of which nothing is needed.

    Triton 2.51 loads it; it holds nothing back.
    """
    for index, group in enumerate(subject.message.instance_group):
        for each in _resources(group):
            if not (each.name and each.count):
                yield Finding(
                    f"instance_group[{index}].rate_limiter",
                    f"resource '{each.name}' has count {each.count}"
                    if each.name
                    else "a resource has no name",
                    'resources { name: "R" count: 1 }',
                )


def rate_limiter_off(subject: Subject) -> Findings:
    """A rate limiter, which most Tritons have switched off.

    Triton ignores it unless it is started with `--rate-limit=execution_count`; those that Servegate
    starts are not by themselves. What else is wrong with it is told in this one's place.
    """
    if any((*resource_twice(subject), *resource_both(subject), *resource_empty(subject))):
        return
    for index, group in enumerate(subject.message.instance_group):
        if group.HasField("rate_limiter"):
            yield Finding(
                f"instance_group[{index}].rate_limiter",
                "a Triton ignores it unless it was started with --rate-limit=execution_count",
                "Tritons of your own with that flag, or no rate_limiter",
            )


def cache_unsupported(subject: Subject) -> Findings:
    """The response cache on a model of sequences or of decoupled answers.

    Triton: `Response Cache does not currently support model … with sequence batching scheduler`.
    """
    for kind in _uncached(subject):
        if subject.message.response_cache.enable:
            yield Finding(
                "response_cache",
                f"it cannot be used with {kind}",
                "response_cache { enable: false }",
            )


def cache_off(subject: Subject) -> Findings:
    """The response cache, which most Tritons do not have.

    Triton 2.51 loads it and caches nothing unless it is started with `--cache-config`; those that
    Servegate starts are not by themselves.
    """
    if subject.message.response_cache.enable and not _uncached(subject):
        yield Finding(
            "response_cache",
            "a Triton ignores it unless it was started with --cache-config",
            "Tritons of your own with --cache-config=local,size=…, or no response_cache",
        )


def _uncached(subject: Subject) -> list[str]:
    """What of this model Triton cannot cache."""
    message = subject.message
    kinds = {
        "sequences": message.HasField("sequence_batching"),
        "decoupled answers": message.model_transaction_policy.decoupled,
    }
    return [kind for kind, is_used in kinds.items() if is_used]


def _resources(group: Any) -> list[Any]:
    return list(group.rate_limiter.resources)
