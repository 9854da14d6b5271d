"""Keys in the store: made, revoked, compiled into the snapshot, and never written down whole."""

import asyncio
import dataclasses
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from builders import ControlPlane

from serve.control.keys import Made
from serve.control.models import By
from serve.core.access import Access, Act, Role
from serve.core.errors import Invalid, PreconditionFailed, Unauthenticated, UnknownKey

T = TypeVar("T")
ADA = By("ada", "a reason")


def play(one: ControlPlane, work: Callable[[], Awaitable[T]]) -> T:
    async def run() -> T:
        await one.begin(a={})
        return await work()

    return asyncio.run(run())


def make(
    one: ControlPlane,
    role: Role = Role.PREDICTOR,
    *models: str,
    expires: float | None = None,
    note: str = "",
) -> Made:
    return play(one, lambda: one.keys.create(role, models or ("*",), expires, note, ADA))


def revoke(one: ControlPlane, identity: str, by: By = ADA) -> object:
    return play(one, lambda: one.keys.revoke(identity, by))


def test_a_key_that_is_made_is_in_the_next_snapshot(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one, Role.PREDICTOR, "digits*", "m", expires=1_700_000_060.0)
    snapshot = one.publisher.snapshot
    assert dict(snapshot.keys) == {made.key.id: made.key}
    assert snapshot.guarded and snapshot.generation == made.written.generation
    assert (made.key.models, made.key.expires) == (("digits*", "m"), 1_700_000_060.0)
    access = Access(snapshot.keys, is_required=True, wall=one.wall)
    assert access.check(f"Bearer {made.words}".encode(), Act.CALL, "digits") == made.key


def test_a_revoked_key_is_in_no_snapshot_and_the_gateway_stays_closed(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one)
    revoke(one, made.key.id)
    snapshot = one.publisher.snapshot
    assert (dict(snapshot.keys), snapshot.guarded) == ({}, True)
    with pytest.raises(Unauthenticated):
        Access(snapshot.keys, is_required=True, wall=one.wall).who(b"Bearer " + made.words.encode())


def test_a_restart_changes_nothing(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    kept, gone = make(one), make(one)
    revoke(one, gone.key.id)
    again = asyncio.run(ControlPlane(tmp_path).begin(a={}))
    assert dict(again.publisher.snapshot.keys) == {kept.key.id: kept.key}
    assert again.keys.all() == one.keys.all()


def test_a_gateway_that_never_had_a_key_is_open(tmp_path: Path) -> None:
    one = asyncio.run(ControlPlane(tmp_path).begin(a={}))
    assert not one.publisher.snapshot.guarded
    assert one.keys.all() == ()


def test_keys_are_listed_from_the_oldest_with_their_state(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    first = make(one, note="first")
    one.wall.now += 1
    second = make(one, Role.ADMIN, expires=one.wall.now + 10)
    one.wall.now += 1
    third = make(one)
    revoke(one, first.key.id)
    one.wall.now += 9
    listed = one.keys.all()
    assert [(status.id, status.state) for status in listed] == [
        (first.key.id, "revoked"),
        (second.key.id, "expired"),
        (third.key.id, "active"),
    ]
    assert (listed[0].author, listed[0].note, listed[1].role) == ("ada", "first", Role.ADMIN)


def test_a_secret_is_nowhere_on_disk(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one)
    revoke(one, made.key.id)
    one.store.close()
    secret = made.words.split("_", 2)[2].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret in path.read_bytes()]


def test_every_change_of_a_key_is_a_revision(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one)
    revoke(one, made.key.id)
    rows = asyncio.run(one.store.history(kind="key", key=made.key.id))
    assert [(row["author"], row["reason"]) for row in rows] == [("ada", "a reason")] * 2
    assert '"revoked": true' in rows[0]["after"]


def test_revoking_again_is_no_mistake_and_no_change(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one)
    assert revoke(one, made.key.id) == revoke(one, made.key.id)
    assert len(asyncio.run(one.store.history(kind="key"))) == 2


def test_an_unknown_key_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(UnknownKey):
        revoke(ControlPlane(tmp_path), "abcd")


def test_a_key_that_has_changed_since_it_was_read_is_not_revoked(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    made = make(one)
    with pytest.raises(PreconditionFailed):
        revoke(one, made.key.id, dataclasses.replace(ADA, if_match='"7"'))
    assert one.keys.all()[0].state == "active"


@pytest.mark.parametrize("models", [["a b"], ["a/b"], [""], ["a,b"], ["a\n"], ["x" * 256], []])
def test_patterns_that_could_be_no_models_name_are_refused(
    tmp_path: Path, models: list[str]
) -> None:
    one = ControlPlane(tmp_path)
    with pytest.raises(Invalid):
        play(one, lambda: one.keys.create(Role.PREDICTOR, models, None, "", ADA))
    assert not one.decisions.guarded


def test_a_key_that_would_be_too_old_at_once_is_refused(tmp_path: Path) -> None:
    one = ControlPlane(tmp_path)
    with pytest.raises(Invalid):
        make(one, expires=one.wall.now)


def test_an_admin_key_for_some_models_is_refused_since_it_could_make_others(
    tmp_path: Path,
) -> None:
    with pytest.raises(Invalid, match="all models"):
        make(ControlPlane(tmp_path), Role.ADMIN, "a*")


def test_a_revocation_before_the_replicas_are_known_is_written_and_not_yet_in_force(
    tmp_path: Path,
) -> None:
    made = make(ControlPlane(tmp_path))
    again = ControlPlane(tmp_path)  # its replicas have not been looked at

    async def scenario() -> list[bool]:
        await again.reload()
        publisher = again.publisher
        await publisher.poll("worker-0", made.written.generation, 0)
        written = await again.keys.revoke(made.key.id, ADA)
        held = [await publisher.in_force(written.generation, 0.01)]
        again.fleet.saw("a", {})
        again.fleet.lost("b", "refused")
        await publisher.poll("worker-0", await publisher.refresh(), 0)
        held.append(await publisher.in_force(written.generation, 0.01))
        return held

    assert asyncio.run(scenario()) == [False, True]
    with sqlite3.connect(tmp_path / "control.sqlite") as connection:
        [(body,)] = connection.execute("select body from settings where kind = 'key'")
    assert '"revoked": true' in body
