"""Routing: which version answers a call, and why. A plain function of snapshot, call and draw.

| the call names          | the version                                     | `by`           |
|-------------------------|-------------------------------------------------|----------------|
| a number                | that one                                        | number         |
| a label                 | the one that the label names                    | label:<label>  |
| nothing, in a sequence  | by the split, drawn from the sequence's identity | sequence       |
| nothing                 | by the split, drawn at random                   | split          |
| nothing, no route set   | the highest that is ready, as Triton does       | latest         |
"""

from collections.abc import Callable

from serve.core.calls import Call, Choice, Verb
from serve.core.errors import NoReplica, UnknownLabel, UnknownModel, UnknownVersion
from serve.core.routes import draw_of
from serve.core.snapshot import ModelView, Snapshot

_LONGEST_NUMBER = 19  # digits of the largest version that Triton can count to
# Questions about a model as a whole: Triton's answer without a version names all of them.
_WHOLE_MODEL = frozenset({Verb.METADATA, Verb.CONFIG, Verb.STATS})


def choose(snapshot: Snapshot, call: Call, draw: Callable[[], float]) -> Choice:
    """The version for this call; an error that says what is missing when there is none."""
    model = snapshot.models.get(call.model)
    if model is None:
        raise UnknownModel(call.model)
    if call.selector.isascii() and call.selector.isdigit():
        if len(call.selector) > _LONGEST_NUMBER:
            raise UnknownVersion(call.model, call.selector[:_LONGEST_NUMBER] + "…")
        return _named(model, int(call.selector), "number")
    if call.selector:
        version = model.labels.get(call.selector)
        if version is None:
            raise UnknownLabel(call.model, call.selector, model.labels)
        return _named(model, version, f"label:{call.selector}")
    return _routed(model, call, draw)


def _named(model: ModelView, version: int, by: str) -> Choice:
    target = model.targets.get(version)
    if target is not None:
        return Choice(target, by, pinned=True)
    if by == "number" and model.targets:
        raise UnknownVersion(model.name, str(version))
    raise NoReplica(model.name, str(version))


def _routed(model: ModelView, call: Call, draw: Callable[[], float]) -> Choice:
    split = model.split
    if split is None:
        raise NoReplica(model.name, "")
    if call.verb is not Verb.INFER:
        version = max(split.shares, key=lambda share: share[1])[0]
    elif call.sequence:
        version = split.choose(draw_of(model.name, call.sequence))
    elif len(split.versions) == 1:
        version = split.versions[0]
    else:
        version = split.choose(draw())
    target = model.targets.get(version)
    if target is None:
        raise NoReplica(model.name, str(version), "the route sends calls to it")
    by = "latest" if not model.routed else "sequence" if call.sequence else "split"
    return Choice(target, by, pinned=call.verb not in _WHOLE_MODEL)
