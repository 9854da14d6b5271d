"""Rules about flavours.json. What is wrong with the configuration that a flavour makes, the other
rules say: `lint` runs them on each flavour as on a model of its own."""

from collections.abc import Iterator, Mapping
from typing import Any

from serve.core.errors import Invalid
from serve.core.flavours import Flavour, VersionFlavours, agree, reaches
from serve.core.versions import FLAVOURS
from serve.triton.flavoured import OVERRIDES, configured, refused_overrides
from serve.triton.lint.subject import Findings, LintFinding, LintSubject


def flavours_malformed(subject: LintSubject) -> Findings:
    """flavours.json is malformed, or the model is an ensemble, which cannot have flavours.

    Triton does not read it.
    """
    try:
        flavours = VersionFlavours.parse(subject.flavours)
    except Invalid as error:
        yield LintFinding(FLAVOURS, error.why or error.what, error.try_this)
        return
    if flavours.preferred and subject.is_ensemble:
        yield LintFinding(
            FLAVOURS, "an ensemble cannot have flavours", "push it with the models of its steps"
        )


def flavour_override(subject: LintSubject) -> Findings:
    """A flavour sets a field that has to be the same for all flavours of a version.

    Triton does not check this. Clients cannot tell which flavour responds, so all must behave the
    same. Paths must stay inside the version.
    """
    for flavour in _flavours(subject):
        try:
            refused = refused_overrides(flavour)
            if subject.config is not None and not refused:
                configured(subject.config, flavour)
        except Invalid as error:
            yield LintFinding(_place(flavour), error.why, "use the fields of config.pbtxt, as JSON")
            continue
        for place in refused:
            yield LintFinding(
                _place(flavour),
                f"it may not set {place}",
                f"set only {', '.join(sorted(OVERRIDES))}, and no path in parameters",
            )


def flavour_needs(subject: LintSubject) -> Findings:
    """A TensorRT plan was built for a different GPU or TensorRT version than its flavour requires.

    TensorRT refuses to load a plan for a different version or GPU.
    """
    for flavour in _flavours(subject):
        yield from dict.fromkeys(_contradictions(subject, flavour))


def _contradictions(subject: LintSubject, flavour: Flavour) -> Findings:
    for facts in _facts(subject, flavour):
        version, needed = str(facts.get("tensorrt") or ""), flavour.needs.tensorrt
        if version and not (needed and all(agree(version, one) for one in needed)):
            yield _contradiction(flavour, "tensorrt", version, needed)
        capability = str(facts.get("compute_capability") or "")
        needed = flavour.needs.compute_capability
        is_wide = facts.get("hardware") not in (None, "none")
        fits = [one == capability or (is_wide and reaches(capability, one)) for one in needed]
        if capability and not (fits and all(fits)):
            yield _contradiction(flavour, "compute_capability", capability, needed)


def _contradiction(flavour: Flavour, fact: str, built: str, needed: tuple[str, ...]) -> LintFinding:
    named = f"its needs name {' and '.join(needed)}" if needed else "its needs name none"
    return LintFinding(
        f"{_place(flavour)} needs.{fact}",
        f"the plan was built for {built}, but {named}",
        f'set "{fact}": ["{built}"]',
    )


def _facts(subject: LintSubject, flavour: Flavour) -> Iterator[Mapping[str, Any]]:
    """What plans.json and the plan itself say."""
    recorded = subject.plans.get(flavour.name)
    if isinstance(recorded, Mapping):
        yield recorded
    signature = subject.signatures.get(flavour.name)
    if signature is not None and signature.format == "plan":
        yield {"tensorrt": signature.facts.get("tensorrt")}


def _flavours(subject: LintSubject) -> Iterator[Flavour]:
    """All but the base; none where flavours.json cannot be read."""
    try:
        yield from VersionFlavours.parse(subject.flavours).preferred
    except Invalid:
        return


def _place(flavour: Flavour) -> str:
    return f"flavour '{flavour.name}'"
