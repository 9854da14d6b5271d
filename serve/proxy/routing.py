"""Routing: which version answers a call, and why. A plain function of snapshot, call and draw.

| the call names          | the version                                     | `by`           |
|-------------------------|-------------------------------------------------|----------------|
| a number                | that one                                        | number         |
| a label                 | the one that the label names                    | label:<label>  |
| nothing                 | by the first match that takes the call          | match          |
| nothing, in a sequence  | by the split, assigned to the sequence          | sequence       |
| nothing, sticky         | by the split, assigned to the caller            | sticky         |
| nothing                 | by the split, drawn at random                   | split          |
| nothing, no route set   | the highest that is ready, as Triton does       | latest         |
| nothing                 | the fallback, where no replica has the others'   | fallback       |
"""

from collections.abc import Callable, Collection

from serve.core.calls import PREDICTIONS, Call, Choice, MirrorTarget, Verb
from serve.core.errors import (
    Asleep,
    BadVersion,
    NoReplica,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
)
from serve.core.routes import BY_KEY, Route, RouteMatch, header_of
from serve.core.snapshot import ComparedOutputs, ModelView, Snapshot, VersionTarget

_LARGEST_NUMBER = (1 << 63) - 1  # the largest version that Triton can count to
_LONGEST_NUMBER = 19  # digits of it
# Questions about a model as a whole: Triton's answer without a version names all of them.
_WHOLE_MODEL = (Verb.METADATA, Verb.CONFIG, Verb.STATS)


def number_of(selector: str) -> int | None:
    """The version that a selector names by its number; None for a label.

    `BadVersion` for a number that Triton cannot count to.
    """
    if not (selector.isascii() and selector.isdigit()):
        return None
    digits = selector.lstrip("0") or "0"
    if len(digits) > _LONGEST_NUMBER or int(digits) > _LARGEST_NUMBER:
        raise BadVersion(selector)
    return int(digits)


def targets_of(
    call: Call, snapshot: Snapshot, sees: Callable[[str], bool]
) -> Collection[VersionTarget]:
    """The versions that a question to the fleet is about: one, or all of a model.

    `UnknownModel`, for one that the caller may not see, too; `UnknownVersion`, `UnknownLabel`.
    """
    model = snapshot.models.get(call.model)
    if model is None or not sees(call.model) or not model.targets:
        raise UnknownModel(call.model)
    if not call.selector:
        return model.targets.values()
    number = number_of(call.selector)
    if number is None:
        number = model.labels.get(call.selector)
    if number is None:
        raise UnknownLabel(call.model, call.selector, model.labels)
    target = model.targets.get(number)
    if target is None:
        raise UnknownVersion(call.model, call.selector)
    return (target,)


def _no_key(call: Call) -> str:
    return ""


class Routing:
    """The choices of one snapshot. Each is made when it is first met, and kept.

    `key_of` is the id of the key that a call shows, or empty.
    """

    def __init__(self, snapshot: Snapshot, key_of: Callable[[Call], str] = _no_key) -> None:
        self.snapshot = snapshot
        self._key_of = key_of
        self._choices: dict[tuple[str, int, str, bool], Choice] = {}
        self.deadlines = {
            name: model.route.deadline
            for name, model in snapshot.models.items()
            if model.route and model.route.deadline
        }

    def __repr__(self) -> str:
        return f"<Routing generation={self.snapshot.generation} choices={len(self._choices)}>"

    def limit(self, call: Call, now: float) -> None:
        """Shorten the deadline of a call with one response to what its route allows from `now`."""
        seconds = self.deadlines.get(call.model)
        if seconds and call.verb in (Verb.INFER, Verb.GENERATE):
            call.deadline = min(call.deadline, now + seconds)

    def choose(self, call: Call, draw: Callable[[], float]) -> Choice:
        """The version for this call; an error that says what is missing when there is none."""
        model = self.snapshot.models.get(call.model)
        if model is None:
            raise UnknownModel(call.model)
        selector = call.selector
        if not selector:
            return self._routed(model, call, draw)
        number = number_of(selector)
        if number is not None:
            return self._named(model, number, "number")
        version = model.labels.get(selector)
        if version is None:
            raise UnknownLabel(call.model, selector, model.labels)
        return self._named(model, version, f"label:{selector}")

    def _named(self, model: ModelView, version: int, by: str) -> Choice:
        target = model.targets.get(version)
        if target is not None:
            return self._choice(model, target, by, pinned=True)
        if by == "number" and model.targets and not model.asleep:
            raise UnknownVersion(model.name, str(version))
        raise _nobody(model, version)

    def _routed(self, model: ModelView, call: Call, draw: Callable[[], float]) -> Choice:
        route = model.route
        if route is None:
            raise Asleep(model.name) if model.asleep else NoReplica(model.name, "")
        split, pinned, verb = route.split, True, call.verb
        by = "split" if model.routed else "latest"
        if verb is not Verb.INFER and verb is not Verb.STREAM and verb not in PREDICTIONS:
            version = max(split.shares, key=lambda share: share[1])[0]
            pinned = verb not in _WHOLE_MODEL
        else:
            match = self._match(route, call) if route.matches else None
            if match is not None:
                split, by = match.split, "match"
            if len(split.versions) == 1:
                version = split.versions[0]
            elif call.sequence:
                version = split.assign(model.name, call.sequence)
                by = "sequence" if by == "split" else by
            elif route.sticky and (identity := self._identity(route.sticky, call)):
                version = split.assign(model.name, identity)
                by = "sticky" if by == "split" else by
            else:
                version = split.choose(draw())
        target = model.targets.get(version)
        if target is None and route.fallback and not model.asleep:
            target, by = model.targets.get(route.fallback), "fallback"
        if target is None:
            raise _nobody(model, version, "the route sends traffic to it")
        return self._choice(model, target, by, pinned=pinned)

    def _match(self, route: Route, call: Call) -> RouteMatch | None:
        for match in route.matches:
            if match.key:
                if match.takes_key(self._key_of(call)):
                    return match
            elif match.takes_value(_header(call, match.header.encode())):
                return match
        return None

    def _identity(self, sticky: str, call: Call) -> str:
        """Who calls; empty when the call does not say it."""
        return self._key_of(call) if sticky == BY_KEY else _header(call, header_of(sticky))

    def _choice(self, model: ModelView, target: VersionTarget, by: str, *, pinned: bool) -> Choice:
        key = (model.name, target.version, by, pinned)
        choice = self._choices.get(key)
        if choice is None:
            generation = self.snapshot.generation
            idempotent = model.route is not None and model.route.idempotent
            mirror = None if by == "number" or by.startswith("label:") else _mirror(model, target)
            choice = Choice(target, by, pinned, model.sequences, generation, idempotent, mirror)
            self._choices[key] = choice
        return choice


def _mirror(model: ModelView, target: VersionTarget) -> MirrorTarget | None:
    """Where copies of the calls go that this version responds to."""
    rule = None if model.route is None else model.route.mirror
    if rule is None or model.sequences or rule.version == target.version:
        return None
    candidate = model.targets.get(rule.version)
    if candidate is None or (candidate.calls_others and not rule.code):
        return None
    compared = model.compared or ComparedOutputs()
    return MirrorTarget(candidate, rule.percent / 100, compared, rule.keep)


def _header(call: Call, name: bytes) -> str:
    return "" if call.origin is None else call.origin.header(name).decode("latin-1")


def _nobody(model: ModelView, version: int, why: str = "") -> NoReplica:
    return Asleep(model.name) if model.asleep else NoReplica(model.name, str(version), why)
