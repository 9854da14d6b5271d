"""Keys in the store: made, revoked, compiled into the snapshot, and never written down whole."""

import dataclasses
import sqlite3
from pathlib import Path

import pytest
from builders import ControlPlane

from serve.control.keys import Made
from serve.control.models import By
from serve.core.access import Access, Act, Role
from serve.core.errors import Invalid, PreconditionFailed, Unauthenticated, UnknownKey

ADA = By("ada", "a reason")


@pytest.fixture
async def one(tmp_path: Path) -> ControlPlane:
    return await ControlPlane(tmp_path).begin(a={})


async def make(
    one: ControlPlane,
    role: Role = Role.PREDICTOR,
    *models: str,
    expires: float | None = None,
    note: str = "",
) -> Made:
    return await one.keys.create(role, models or ("*",), expires, note, ADA)


def access(one: ControlPlane) -> Access:
    """As a worker checks keys."""
    return Access(one.publisher.snapshot.keys, is_required=True, wall=one.wall)


async def test_a_key_that_is_made_is_in_the_next_snapshot(one: ControlPlane) -> None:
    assert not one.publisher.snapshot.guarded and one.keys.all() == ()  # it was open before
    made = await make(one, Role.PREDICTOR, "digits*", "m", expires=1_700_000_060.0)
    snapshot = one.publisher.snapshot
    assert dict(snapshot.keys) == {made.key.id: made.key}
    assert snapshot.guarded and snapshot.generation == made.written.generation
    assert (made.key.models, made.key.expires) == (("digits*", "m"), 1_700_000_060.0)
    assert access(one).check(f"Bearer {made.words}".encode(), Act.CALL, "digits") == made.key


async def test_a_revoked_key_is_in_no_snapshot_and_the_gateway_stays_closed(
    one: ControlPlane, tmp_path: Path
) -> None:
    gone = await make(one)
    await one.keys.revoke(gone.key.id, ADA)
    assert (dict(one.publisher.snapshot.keys), one.publisher.snapshot.guarded) == ({}, True)
    with pytest.raises(Unauthenticated):
        access(one).who(b"Bearer " + gone.words.encode())
    kept = await make(one)
    again = await ControlPlane(tmp_path).begin(a={})  # a restart changes nothing
    assert dict(again.publisher.snapshot.keys) == {kept.key.id: kept.key}
    assert again.keys.all() == one.keys.all()


async def test_keys_are_listed_from_the_oldest_with_their_state(one: ControlPlane) -> None:
    first = await make(one, note="first")
    one.wall.now += 1
    second = await make(one, Role.ADMIN, expires=one.wall.now + 10)
    one.wall.now += 1
    third = await make(one)
    await one.keys.revoke(first.key.id, ADA)
    one.wall.now += 9
    listed = one.keys.all()
    assert [(status.id, status.state) for status in listed] == [
        (first.key.id, "revoked"),
        (second.key.id, "expired"),
        (third.key.id, "active"),
    ]
    assert (listed[0].author, listed[0].note, listed[1].role) == ("ada", "first", Role.ADMIN)


async def test_a_secret_is_nowhere_on_disk(one: ControlPlane, tmp_path: Path) -> None:
    made = await make(one)
    await one.keys.revoke(made.key.id, ADA)
    one.store.close()
    secret = made.words.split("_", 2)[2].encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if secret in path.read_bytes()]


async def test_each_change_of_a_key_is_a_revision_revoking_again_is_none(one: ControlPlane) -> None:
    made = await make(one)
    with pytest.raises(PreconditionFailed):  # it has changed since it was read
        await one.keys.revoke(made.key.id, dataclasses.replace(ADA, if_match='"7"'))
    assert one.keys.all()[0].state == "active"
    revoked = await one.keys.revoke(made.key.id, ADA)
    assert await one.keys.revoke(made.key.id, ADA) == revoked
    rows = await one.store.history(kind="key", key=made.key.id)
    assert [(row["author"], row["reason"]) for row in rows] == [("ada", "a reason")] * 2
    assert '"revoked": true' in rows[0]["after"]
    with pytest.raises(UnknownKey):
        await one.keys.revoke("abcd", ADA)


async def test_a_key_that_could_not_be_meant_so_is_refused(one: ControlPlane) -> None:
    for models in (["a b"], ["a/b"], [""], ["a,b"], ["a\n"], ["x" * 256], []):
        with pytest.raises(Invalid):
            await one.keys.create(Role.PREDICTOR, models, None, "", ADA)
    with pytest.raises(Invalid):  # it would be too old at once
        await make(one, expires=one.wall.now)
    with pytest.raises(Invalid, match="all models"):  # it could make others for all of them
        await make(one, Role.ADMIN, "a*")
    assert not one.decisions.guarded


async def test_a_revocation_before_the_replicas_are_known_is_written_and_not_yet_in_force(
    one: ControlPlane, tmp_path: Path
) -> None:
    made = await make(one)
    again = ControlPlane(tmp_path)  # its replicas have not been looked at
    await again.reload()
    publisher = again.publisher
    await publisher.poll("worker-0", made.written.generation, 0)
    written = await again.keys.revoke(made.key.id, ADA)
    assert not await publisher.in_force(written.generation, 0.01)
    again.fleet.saw("a", {})
    again.fleet.lost("b", "refused")
    await publisher.poll("worker-0", await publisher.refresh(), 0)
    assert await publisher.in_force(written.generation, 0.01)
    with sqlite3.connect(tmp_path / "control.sqlite") as connection:
        [(body,)] = connection.execute("select body from settings where kind = 'key'")
    assert '"revoked": true' in body
