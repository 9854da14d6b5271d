"""The gateway asks for keys once the snapshot has them; what is refused tells nothing."""

import dataclasses
from types import MappingProxyType

from builders import DataPlane, call, snapshot, target, view
from refusals import refusal

from serve.core.access import Act, ApiKey, Role
from serve.core.calls import Call, Verb
from serve.core.errors import Forbidden, Unauthenticated, UnknownModel
from serve.core.snapshot import Snapshot


class Scene:
    """Models `open` and `shut`, which serves sequences; the key sees the first."""

    def __init__(self, *, guarded: bool = True) -> None:
        self.key, self.words = ApiKey.create(Role.PREDICTOR, ("open*",))
        self.plane = DataPlane(self.served(self.key, generation=1, guarded=guarded))
        self.gateway = self.plane.gateway

    def served(self, *keys: ApiKey, generation: int, guarded: bool = True) -> Snapshot:
        models = [view(target(model=name), name=name, sequences=True) for name in ("open", "shut")]
        return dataclasses.replace(
            snapshot(*models, generation=generation),
            keys=MappingProxyType({key.id: key for key in keys} if guarded else {}),
            guarded=guarded,
        )

    @property
    def credential(self) -> bytes:
        return b"Bearer " + self.words.encode()

    def call(self, model: str, verb: Verb = Verb.INFER, *, shown: bytes | None = None) -> Call:
        asked = call(verb, model=model)
        asked.credential = self.credential if shown is None else shown
        return asked

    def outcome(self, asked: Call) -> str:
        walk = self.plane.walk(asked=asked)
        return walk.error.code if walk.error else "served"


def test_every_verb_wants_a_key_unless_there_are_none() -> None:
    for verb in [verb for verb in Verb if verb not in (Verb.MANAGEMENT, Verb.INDEX)]:
        scene = Scene()
        for shown in (b"", b"Bearer x", b"Bearer sg_abcd_0123456789abcdef"):
            assert scene.outcome(scene.call("open", verb, shown=shown)) == "unauthenticated"
        assert scene.outcome(scene.call("open", verb)) == "served", verb
    scene = Scene(guarded=False)
    assert scene.outcome(scene.call("shut", shown=b"")) == "served"


def test_a_model_that_the_key_does_not_see_is_answered_as_one_that_is_not_there() -> None:
    scene = Scene()
    told = [scene.plane.walk(asked=scene.call(name)).error for name in ("shut", "gone")]
    assert [type(error) for error in told] == [UnknownModel, UnknownModel]
    assert str(told[0]).replace("shut", "gone") == str(told[1])
    labels = {"model": "", "version": "", "route": "", "protocol": "http"}
    assert scene.plane.count("servegate_errors_total", **labels, error="unknown_model") == 2


def test_a_key_that_the_next_snapshot_lacks_is_refused_from_its_first_call_on() -> None:
    scene = Scene()
    before = scene.outcome(scene.call("open"))
    scene.plane.live.swap(scene.served(generation=2))
    assert (before, scene.outcome(scene.call("open"))) == ("served", "unauthenticated")


def test_questions_to_the_fleet_are_told_which_models_exist_for_the_caller() -> None:
    scene = Scene()
    served, sees = scene.gateway.fleet(scene.call("", Verb.INDEX))
    assert [name for name in served.models if sees(name)] == ["open"]
    _, everything = Scene(guarded=False).gateway.fleet(scene.call("", Verb.INDEX, shown=b""))
    assert everything("shut")


def test_questions_that_the_caller_may_not_ask_are_refused() -> None:
    for model, act, shown, error in (
        ("", Act.ASK, b"", Unauthenticated),
        ("shut", Act.ASK, None, UnknownModel),
        ("", Act.MANAGE, None, Forbidden),
        ("shut", Act.MANAGE, None, Forbidden),
    ):
        scene = Scene()
        refusal(error, scene.gateway.fleet, scene.call(model, Verb.STATS, shown=shown), act)


def test_that_a_model_serves_sequences_is_told_to_nobody_who_may_not_see_it() -> None:
    scene = Scene()
    told = scene.gateway.serves_sequences
    assert told("open", scene.credential)
    assert not told("shut", scene.credential)
    assert not told("open", b"")
    assert Scene(guarded=False).gateway.serves_sequences("shut", b"")
