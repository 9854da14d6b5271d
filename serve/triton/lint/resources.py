"""Rules about what a Triton must be started for: its rate limiter, and its response cache."""

from collections import Counter
from typing import Any

from serve.triton.lint.subject import Findings, LintFinding, LintSubject


def resource_twice(subject: LintSubject) -> Findings:
    """An instance group lists a resource twice.

    Triton 2.51 loads the model and uses one of the counts.
    """
    for index, group in enumerate(subject.message.instance_group):
        names = Counter((each.name, getattr(each, "global")) for each in _resources(group))
        for (name, _), count in names.items():
            if count > 1:
                yield LintFinding(
                    f"instance_group[{index}].rate_limiter",
                    f"resource '{name}' is listed {count} times",
                    "list each resource once",
                )


def resource_both(subject: LintSubject) -> Findings:
    """A resource is both global and device-specific.

    Triton: `is present as both global and device-specific resource in the model configuration`.
    """
    kinds: dict[str, set[bool]] = {}
    for group in subject.message.instance_group:
        for each in _resources(group):
            kinds.setdefault(each.name, set()).add(getattr(each, "global"))
    for name, found in kinds.items():
        if len(found) > 1:
            yield LintFinding(
                "instance_group.rate_limiter",
                f"resource '{name}' is both global and device-specific",
                "set global: true everywhere, or nowhere",
            )


def resource_empty(subject: LintSubject) -> Findings:
    """A resource has no name, or a count of 0.

    Triton 2.51 loads the model, and the resource limits nothing.
    """
    for index, group in enumerate(subject.message.instance_group):
        for each in _resources(group):
            if not (each.name and each.count):
                yield LintFinding(
                    f"instance_group[{index}].rate_limiter",
                    f"resource '{each.name}' has count {each.count}"
                    if each.name
                    else "a resource has no name",
                    'use resources { name: "R" count: 1 }',
                )


def rate_limiter_off(subject: LintSubject) -> Findings:
    """A rate limiter is configured, but Triton ignores it by default.

    Triton needs `--rate-limit=execution_count`, which Servegate does not set by default. If another
    rule finds an error in the rate limiter, this warning is omitted.
    """
    if any((*resource_twice(subject), *resource_both(subject), *resource_empty(subject))):
        return
    for index, group in enumerate(subject.message.instance_group):
        if group.HasField("rate_limiter"):
            yield LintFinding(
                f"instance_group[{index}].rate_limiter",
                "Triton ignores it unless it was started with --rate-limit=execution_count",
                "start Triton with that flag, or remove rate_limiter",
            )


def cache_unsupported(subject: LintSubject) -> Findings:
    """The response cache is enabled for a model with sequences or decoupled responses.

    Triton: `Response Cache does not currently support model … with sequence batching scheduler`.
    """
    for kind in _uncached(subject):
        if subject.message.response_cache.enable:
            yield LintFinding(
                "response_cache",
                f"it cannot be used with {kind}",
                "set response_cache { enable: false }",
            )


def cache_off(subject: LintSubject) -> Findings:
    """The response cache is enabled for the model, but disabled in Triton by default.

    Triton 2.51 loads the model and caches nothing unless it is started with `--cache-config`, which
    Servegate does not set by default.
    """
    if subject.message.response_cache.enable and not _uncached(subject):
        yield LintFinding(
            "response_cache",
            "Triton ignores it unless it was started with --cache-config",
            "start Triton with --cache-config=local,size=…, or remove response_cache",
        )


def _uncached(subject: LintSubject) -> list[str]:
    """What of this model Triton cannot cache."""
    message = subject.message
    kinds = {
        "sequences": message.HasField("sequence_batching"),
        "decoupled responses": message.model_transaction_policy.decoupled,
    }
    return [kind for kind, is_used in kinds.items() if is_used]


def _resources(group: Any) -> list[Any]:
    return list(group.rate_limiter.resources)
