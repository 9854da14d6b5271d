"""History: what two states differ in, what no answer shows, and which way back there is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack

import pytest

from serve.control.decisions import SERVING, Decisions
from serve.control.history import History, differences
from serve.control.models import By, Written
from serve.control.restoration import RestoreCommands
from serve.control.storage.store import Store, StoreEdit, etag
from serve.core.errors import Invalid, LaterChanges, PreconditionFailed, UnknownRevision
from serve.core.routes import Route, RouteRules, Split

from .versions_scene import split

BY = By("eve", "too slow")


class Commands:
    """Stands for `Models` and `Management`: writes down what is asked of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.asked: list[tuple[Any, ...]] = []

    async def set_route(
        self, name: str, split: Split, by: By, **rules: Unpack[RouteRules]
    ) -> Written:
        body = Route(split, **rules).to_json()
        change = StoreEdit("route", name, body, by.author, by.reason, by.if_match)
        self.asked.append(("route", name, str(split), by))
        return Written(7, etag(await self._store.apply(change)))

    async def set_label(self, name: str, label: str, version: int, by: By) -> Written:
        self.asked.append(("label", name, label, version))
        return Written(7, "")

    async def remove_label(self, name: str, label: str, by: By) -> Written:
        self.asked.append(("no label", name, label))
        return Written(7, "")

    async def configure(
        self, name: str, *, objective: str | None, pool: str | None, by: By
    ) -> Written:
        self.asked.append(("model", name, objective, pool))
        return Written(7, "")

    async def load(self, name: str, config: str | None, by: By, within: float) -> None:
        self.asked.append(("load", name, config))

    async def unload(self, name: str, by: By, within: float) -> None:
        self.asked.append(("unload", name))


class Scene:
    """A store with a history, and the commands that stand for the control plane."""

    def __init__(self, where: Path | str) -> None:
        self.store = Store(where, clock=lambda: 1.5)
        self.store.migrate()
        self.commands = Commands(self.store)
        self.decisions = Decisions()
        restoring = RestoreCommands(
            self.commands, self.commands, decisions=lambda: self.decisions, generation=lambda: 9
        )
        self.history = History(self.store, restoring.by_kind)

    async def set(self, kind: str, key: str, *bodies: Any) -> list[int]:
        """One change after the other; their numbers."""
        made = [await self.store.apply(StoreEdit(kind, key, body, "ada")) for body in bodies]
        self.decisions = Decisions(await self.store.read())
        return made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path / "control.sqlite")
    yield scene
    scene.store.close()


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (split(v1=100), split(v1=60, v2=40), ["split.1: 100 → 60", "split.2: (nothing) → 40"]),
        (split(v9=1, v10=1), split(v9=2, v10=2), ["split.9: 1 → 2", "split.10: 1 → 2"]),
        (None, {"objective": "p99<50ms"}, ['objective: (nothing) → "p99<50ms"']),
        ({"pool": "a"}, None, ['pool: "a" → (nothing)']),
        ({"labels": ["a"]}, {"labels": ["a", "b"]}, ['labels: ["a"] → ["a", "b"]']),
        ({"io": [{"n": 1}]}, {"io": [{"n": 2}]}, ["io.0.n: 1 → 2"]),
        ({"tags": {}}, {"tags": {"x": "\x1b[31m"}}, ['tags.x: (nothing) → "\\u001b[31m"']),
        ({"live": False}, {"live": True, "labels": []}, ["live: false → true"]),
        ({"memory": None}, {"memory": None}, []),
        ({"memory": None}, {}, []),
        (None, {}, []),
        (1, 2, ["value: 1 → 2"]),
    ],
)  # fmt: skip
def test_a_difference_is_told_field_by_field(old: Any, new: Any, lines: list[str]) -> None:
    assert [str(one) for one in differences(old, new)] == lines


async def test_the_newest_changes_come_first_of_all_or_of_some(scene: Scene) -> None:
    first, second = await scene.set("route", "m", split(v1=1), split(v2=1))
    (third,) = await scene.set("label", "m:stable", {"version": 1})
    assert [one.number for one in await scene.history.all()] == [third, second, first]
    found = await scene.history.all(kind="route", key="m", before=second, limit=5)
    assert [(one.number, one.before, one.after) for one in found] == [(first, None, split(v1=1))]
    assert (found[0].at, found[0].author, found[0].thing) == (1.5, "ada", "route m")


async def test_a_revision_that_there_is_not_is_unknown(where: Path | str) -> None:
    scene = Scene(where)
    await scene.set("route", "m", split(v1=1))
    for number in (-1, 0, 99, 2**63, 10**30):
        with pytest.raises(UnknownRevision):
            await scene.history.get(number)
        assert len(await scene.history.all(before=max(number, 99))) == 1
    scene.store.close()


async def test_a_revision_is_compared_with_what_was_before_or_with_another(scene: Scene) -> None:
    one, two, three = await scene.set("route", "m", split(v1=1), split(v1=2), split(v1=3))
    (other,) = await scene.set("route", "x", split(v1=1))
    assert [str(line) for line in await scene.history.diff(two)] == ["split.1: 1 → 2"]
    assert [str(line) for line in await scene.history.diff(one, three)] == ["split.1: 1 → 3"]
    assert await scene.history.diff(one, one) == ()
    with pytest.raises(Invalid, match=r"changed route m, .* changed route x"):
        await scene.history.diff(one, other)


async def test_no_answer_shows_the_digest_of_a_key(scene: Scene) -> None:
    first, second = await scene.set(
        "key", "3f", {"digest": "d1", "role": "admin"}, {"digest": "d1", "revoked": True}
    )
    for number in (first, second):
        told = f"{await scene.history.get(number)} {await scene.history.diff(number)}"
        assert "d1" not in told and "digest" not in told
    assert "digest" not in str(await scene.history.all())


async def test_a_route_goes_back_with_its_rules_as_a_new_change_of_today(scene: Scene) -> None:
    rules = {"sticky": "key", "matches": [{"key": "3f*", "split": {"2": 1}}], "fallback": 1}
    first, second = await scene.set("route", "m", split(v1=100) | rules, split(v2=100))
    written = await scene.history.restore(first, By("eve", "too slow", etag(second)))
    assert written is not None
    entry = (await scene.store.read())["route", "m"]
    assert (entry.body, entry.etag) == (split(v1=100) | rules, written.etag)
    newest = (await scene.history.all())[0]
    assert (newest.author, newest.before) == ("eve", split(v2=100))
    assert newest.reason == f"restored revision {first}: too slow"
    with pytest.raises(PreconditionFailed):
        await scene.history.restore(second, By("eve", "", etag(second)))


async def test_each_kind_goes_back_by_its_own_command(scene: Scene) -> None:
    rows: list[tuple[str, str, Any, tuple[Any, ...]]] = [
        ("label", "a:b:stable", {"version": 3}, ("label", "a:b", "stable", 3)),
        ("label", "m:stable", None, ("no label", "m", "stable")),
        ("model", "m", {"pool": "a100"}, ("model", "m", "", "a100")),
        ("model", "m", None, ("model", "m", "", "")),
        ("serving", "m", {"unloaded": True}, ("unload", "m")),
        ("serving", "m", {"config": "{}"}, ("load", "m", "{}")),
        ("serving", "m", None, ("load", "m", None)),
    ]
    for kind, key, body, asked in rows:
        _, number, _ = await scene.set(kind, key, {"version": 1}, body, {"version": 2})
        await scene.history.restore(number, BY)
        assert scene.commands.asked.pop() == asked
    assert scene.commands.asked == []


async def test_what_is_served_goes_back_only_from_the_state_that_was_seen(scene: Scene) -> None:
    first, second = await scene.set(SERVING, "m", {"unloaded": True}, {"config": "{}"})
    with pytest.raises(PreconditionFailed):
        await scene.history.restore(first, By("eve", "", etag(first)))
    assert scene.commands.asked == []
    written = await scene.history.restore(first, By("eve", "", etag(second)))
    assert written == Written(9, etag(second))  # the stand-in writes nothing


async def test_what_cannot_go_back_is_refused_with_the_reason(scene: Scene) -> None:
    for kind, key, body, why in (
        ("key", "3f", {"digest": "d", "role": "admin"}, "a revoked key stays revoked"),
        ("version", "m:1", None, "a version never changes"),
        ("trace", "", {"trace_level": ["OFF"]}, "only route, label, model, serving can be"),
        ("route", "m", None, "a route cannot be removed"),
    ):
        edits = [StoreEdit(kind, key, each, "ada") for each in (body, {"x": 1})]
        number, _ = await scene.store.apply_all(edits)
        with pytest.raises(Invalid, match=why):
            await scene.history.restore(number, BY)
    assert scene.commands.asked == []


async def test_the_bad_revision_is_undone_and_not_restored(scene: Scene) -> None:
    _, bad = await scene.set("route", "m", split(v1=100), split(v2=100))
    assert await scene.history.restore(bad, BY) is None
    assert scene.commands.asked == []
    written = await scene.history.undo(bad, BY)
    entry = (await scene.store.read())["route", "m"]
    assert written is not None
    assert (entry.body, entry.etag) == (split(v1=100), written.etag)
    newest = (await scene.history.all())[0]
    assert newest.reason == f"undid revision {bad}: too slow"
    await scene.history.undo(newest.number, BY)
    assert (await scene.store.read())["route", "m"].body == split(v2=100)
    way = await scene.history.undoing((await scene.history.all())[0].number)
    await scene.set("route", "m", split(v3=100))
    with pytest.raises(PreconditionFailed):  # it holds only for the state that it was decided on
        await scene.history.take(way, BY)


async def test_an_undo_is_refused_where_later_changes_are_built_on_it(scene: Scene) -> None:
    first, bad, later = await scene.set(
        "route", "m", split(v1=100), split(v1=60, v2=40), split(v1=50, v2=50)
    )
    with pytest.raises(LaterChanges) as refused:
        await scene.history.undo(bad, BY)
    assert refused.value.why == f"revision {later} by ada: split.1: 60 → 50; split.2: 40 → 50"
    assert refused.value.try_this == (
        f"servegate history undo {later} first, or servegate history restore {first}"
    )
    assert scene.commands.asked == []
    await scene.history.restore(first, BY)
    assert scene.commands.asked[0][:2] == ("route", "m")


async def test_an_undo_leaves_later_changes_of_other_fields(scene: Scene) -> None:
    objective = {"objective": "p99<9ms"}
    rows: list[tuple[list[Any], int, tuple[str, str]]] = [
        ([objective, objective | {"pool": "b"}], 0, ("", "b")),
        ([{"pool": "a"}, {"pool": "b"}, {"pool": "b"} | objective], 1, ("p99<9ms", "a")),
        ([{"pool": "a"}], 0, ("", "")),
        ([{"pool": "a"}, None], 1, ("", "a")),
    ]
    for number, (bodies, undone, asked) in enumerate(rows):
        made = await scene.set("model", f"m{number}", *bodies)
        await scene.set("model", "x", {"pool": "z"})
        await scene.history.undo(made[undone], BY)
        assert scene.commands.asked.pop() == ("model", f"m{number}", *asked)
