"""The client of the upload protocol: digests of files, what is sent, and what is sent again."""

import asyncio
import hashlib
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_gateway import FakeGateway, Fault
from refusals import refusal

from serve.cli.channel import Channel, Patience
from serve.cli.client import AdminClient
from serve.cli.digests import Blob, digest
from serve.cli.pieces import UploadPiece
from serve.cli.uploads import CommittedVersion, Uploading
from serve.core.errors import (
    Conflict,
    Forbidden,
    Invalid,
    NoControl,
    NoSpace,
    OutcomeUnknown,
    Unavailable,
)

QUICK = Patience(first=0.001, longest=0.01, whole=5.0)
BRIEF = Patience(first=0.001, longest=0.01, whole=0.1)
ASK: dict[str, Any] = {"labels": [], "live": False, "again": False}
SIZE = 300_000


class Quiet:
    """Talk that only counts."""

    def __init__(self) -> None:
        self.done = 0
        self.told: list[tuple[str, str]] = []

    def tell(self, kind: str, text: str = "", **facts: Any) -> None:
        self.told.append((kind, text))

    def begin(self, stage: str, total: int, done: int = 0) -> None:
        self.done = done

    def advance(self, count: int) -> None:
        self.done += count

    def end(self) -> None:
        """Nothing to end."""


def noise(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


class Push:
    """A push of files in a folder to a fake gateway."""

    def __init__(self, gateway: FakeGateway, folder: Path) -> None:
        self.gateway = gateway
        self.folder = folder

    def blobs(self, **contents: bytes) -> tuple[Blob, ...]:
        """A version with these files, and their digests."""
        pieces = []
        for name, data in contents.items():
            (self.folder / name).write_bytes(data)
            pieces.append(UploadPiece(f"1/{name}", self.folder / name))
        return digest(pieces, lambda count: None)

    def publish(
        self, blobs: tuple[Blob, ...], **options: Any
    ) -> tuple[CommittedVersion, Uploading]:
        """What came of one push, and the upload with its counts."""
        return asyncio.run(self.publishing(blobs, **options))

    async def publishing(
        self,
        blobs: tuple[Blob, ...],
        *,
        patience: Patience = QUICK,
        piece: int = 1 << 16,
        talk: Quiet | None = None,
        **ask: Any,
    ) -> tuple[CommittedVersion, Uploading]:
        talk = talk or Quiet()
        async with AdminClient(self.gateway.url).asynchronous() as client:
            channel = Channel(client, talk, patience=patience)
            uploading = Uploading(channel, talk, model="m", blobs=blobs, piece=piece)
            return await uploading.publish(ASK | ask), uploading

    @property
    def patches(self) -> int:
        return sum(method == "PATCH" for method, _ in self.gateway.asked)


@pytest.fixture
def push(tmp_path: Path) -> Iterator[Push]:
    with FakeGateway().running() as running:
        yield Push(running, tmp_path)


def test_nothing_is_sent_before_it_is_known_where_to_go_on(push: Push) -> None:
    push.gateway.faults += [Fault("PATCH", drop_after=250_000), Fault("HEAD", status=503)]
    _, uploading = push.publish(push.blobs(a=noise(SIZE)), piece=SIZE)
    assert uploading.sent <= SIZE + 50_000


def test_a_refusal_ends_the_upload_at_once(push: Push) -> None:
    kinds = {"no_space": (507, NoSpace), "invalid": (422, Invalid), "forbidden": (403, Forbidden)}
    kinds["in_use"] = 409, Conflict
    for count, (code, (status, kind)) in enumerate(kinds.items(), 1):
        push.gateway.faults.append(Fault("PATCH", status=status, code=code))
        assert refusal(kind, push.publish, push.blobs(a=noise(SIZE))).code == code
        assert push.patches == count


def test_an_address_where_nobody_listens_is_not_waited_for(push: Push) -> None:
    push.gateway.stop()
    with pytest.raises(NoControl, match="does not respond"):
        push.publish(push.blobs(a=noise(10)), patience=Patience(60, 60, 600))
    push.gateway.start()


def test_a_gateway_that_restarts_is_waited_for(push: Push) -> None:
    fault = Fault("PATCH", drop_after=100_000, held=threading.Event())
    push.gateway.faults.append(fault)
    blobs = push.blobs(a=noise(SIZE))

    async def scene() -> tuple[CommittedVersion, Uploading]:
        task = asyncio.create_task(push.publishing(blobs, piece=SIZE))
        await asyncio.to_thread(fault.reached.wait, 10)
        await asyncio.to_thread(push.gateway.stop)
        assert fault.held is not None
        fault.held.set()
        await asyncio.to_thread(push.gateway.start)
        return await task

    committed, _ = asyncio.run(scene())
    assert committed.created
    assert push.gateway.received == SIZE


def test_a_file_that_changes_after_its_digest_is_noticed(push: Push) -> None:
    blobs = push.blobs(a=noise(SIZE))
    (push.folder / "a").write_bytes(noise(SIZE + 1, seed=5))
    with pytest.raises(Conflict, match="'1/a' changed during the push"):
        push.publish(blobs)
    assert not push.gateway.versions


def test_another_client_that_sends_the_same_file_is_a_help(push: Push) -> None:
    fault = Fault("PATCH", status=503)
    push.gateway.faults.append(fault)
    blobs = push.blobs(a=noise(SIZE))
    sha256 = blobs[0].file.sha256

    async def scene() -> tuple[CommittedVersion, Uploading]:
        task = asyncio.create_task(push.publishing(blobs, piece=SIZE))
        await asyncio.to_thread(fault.reached.wait, 10)
        push.gateway.staged[sha256] = bytearray(noise(SIZE)[:250_000])
        return await task

    committed, _ = asyncio.run(scene())
    assert committed.created
    assert push.gateway.received == 50_000
    assert list(push.gateway.blobs.values()) == [noise(SIZE)]


def test_a_stranger_at_the_address_is_told_from_a_gateway(push: Push) -> None:
    push.gateway.faults.append(Fault("POST", status=200))
    with pytest.raises(NoControl, match="is not a control plane"):
        push.publish(push.blobs(a=noise(10)))


def test_all_files_arrive_and_every_byte_leaves_once(push: Push) -> None:
    many = {f"f{n}": noise(100, n) for n in range(300)}
    (push.folder / "large").write_bytes(noise(SIZE, 1))
    pieces = [
        UploadPiece("1/large", push.folder / "large"),
        UploadPiece("1/generated", noise(1000, 2)),
    ]
    blobs = (*digest(pieces, lambda count: None), *push.blobs(**many))
    talk = Quiet()
    committed, uploading = push.publish(blobs, piece=100_000, talk=talk)
    assert committed == CommittedVersion(1, "uploaded", True)
    assert {hashlib.sha256(data).hexdigest() for data in push.gateway.blobs.values()} == {
        blob.file.sha256 for blob in blobs
    }
    assert uploading.sent == uploading.total == push.gateway.received == talk.done == SIZE + 31_000
    assert push.patches == 3 + 301, "no piece is larger than it may be"


def test_only_what_is_missing_is_sent(push: Push) -> None:
    one, same = {"a": noise(SIZE, 1)}, {"a": noise(SIZE, 1), "copy": noise(SIZE, 1)}
    for files, sent, total, created in (
        (same, SIZE, SIZE, True),
        (one, 0, SIZE, True),
        (one, 0, SIZE, False),
        (one | {"b": noise(500, 2)}, 500, SIZE + 500, True),
    ):
        blobs = push.blobs(**files)
        committed, uploading = push.publish(blobs, labels=["candidate"], live=True)
        assert (uploading.sent, uploading.total, committed.created) == (sent, total, created)
        assert (
            push.gateway.commits[-1]["labels"] == ["candidate"] and push.gateway.commits[-1]["live"]
        )


@pytest.mark.parametrize("there", [200_000, SIZE], ids=["a part", "all, not verified yet"])
def test_an_upload_goes_on_where_an_earlier_one_stopped(push: Push, there: int) -> None:
    blobs = push.blobs(a=noise(SIZE))
    push.gateway.staged[blobs[0].file.sha256] = bytearray(noise(SIZE)[:there])
    talk = Quiet()
    _, uploading = push.publish(blobs, talk=talk)
    assert (uploading.sent, talk.done) == (SIZE - there, SIZE)
    assert list(push.gateway.blobs.values()) == [noise(SIZE)]


@pytest.mark.parametrize(
    "after", [[0], [1], [65_536], [250_000], [SIZE], [10_000] * 20], ids=lambda after: str(after[0])
)
def test_a_lost_connection_costs_only_what_had_not_arrived(push: Push, after: list[int]) -> None:
    push.gateway.faults += [Fault("PATCH", drop_after=count) for count in after]
    blobs, talk = push.blobs(a=noise(SIZE)), Quiet()
    committed, _ = push.publish(blobs, piece=SIZE, talk=talk, patience=BRIEF)
    assert committed.created
    assert list(push.gateway.blobs.values()) == [noise(SIZE)]
    assert push.gateway.received == talk.done == SIZE


@pytest.mark.parametrize("step", [("POST", "/api/uploads"), ("PATCH", ""), ("POST", "/commit")])
def test_a_request_is_repeated_after_a_lost_answer_and_in_trouble(
    push: Push, step: tuple[str, str]
) -> None:
    push.gateway.faults += [Fault(*step, status=one) for one in (408, 429, 500, 502, 503, 504)]
    push.gateway.faults.append(Fault(*step, is_silent=True))
    push.publish(push.blobs(a=noise(SIZE)))
    assert list(push.gateway.versions) == [1]
    assert push.gateway.received == SIZE


@pytest.mark.parametrize(
    "fault",
    [
        Fault("PATCH", status=404, code="unknown_upload"),
        Fault("POST", "/commit", status=409, code="conflict"),
    ],
    ids=["the upload was forgotten", "blobs vanished before the commit"],
)
def test_an_upload_is_begun_again(push: Push, fault: Fault) -> None:
    push.gateway.faults.append(fault)
    committed, _ = push.publish(push.blobs(a=noise(SIZE)))
    assert committed.created
    assert push.gateway.asked.count(("POST", "/api/uploads")) == 2


def test_a_gateway_that_stays_in_trouble_is_given_up(push: Push) -> None:
    push.gateway.faults += [Fault("PATCH", status=503) for _ in range(1000)]
    with pytest.raises(Unavailable):
        push.publish(push.blobs(a=noise(SIZE)), patience=BRIEF)


def test_bytes_that_were_spoilt_on_the_way_are_sent_once_more_and_not_again(
    push: Push,
) -> None:
    push.gateway.faults += [Fault("PATCH", spoil=True) for _ in range(3)]
    with pytest.raises(Invalid) as raised:
        push.publish(push.blobs(a=noise(SIZE)), piece=SIZE)
    assert (raised.value.code, push.patches) == ("digest_mismatch", 2)
    committed, uploading = push.publish(push.blobs(a=noise(SIZE)), piece=SIZE)
    assert (committed.created, uploading.sent) == (True, 2 * SIZE)


def test_a_second_number_is_asked_for_again_only_when_nothing_was_done(push: Push) -> None:
    blobs = push.blobs(a=noise(10))
    push.publish(blobs)
    push.gateway.faults.append(Fault("POST", "/commit", status=503))
    committed, _ = push.publish(blobs, again=True)
    assert (committed.version, committed.created) == (2, True)
    push.gateway.faults.append(Fault("POST", "/commit", is_silent=True))
    with pytest.raises(OutcomeUnknown):
        push.publish(blobs, again=True)
    assert list(push.gateway.versions) == [1, 2, 3]


# --- digests -------------------------------------------------------------------------------------


def test_every_piece_gets_its_digest_in_its_place(tmp_path: Path) -> None:
    counted: list[int] = []
    (tmp_path / "large").write_bytes(bytes(3 << 20))
    (tmp_path / "none").write_bytes(b"")
    pieces = [
        UploadPiece("a", b"abc"),
        UploadPiece("b", tmp_path / "large"),
        UploadPiece("c", tmp_path / "none"),
    ]
    blobs = digest(pieces, counted.append)
    assert [(blob.file.path, blob.file.size) for blob in blobs] == [
        ("a", 3),
        ("b", 3 << 20),
        ("c", 0),
    ]
    assert blobs[1].file.sha256 == hashlib.sha256(bytes(3 << 20)).hexdigest()
    assert sum(counted) == (3 << 20) + 3
    with pytest.raises(Invalid, match="gone cannot be read: No such file"):
        digest([UploadPiece("a", tmp_path / "gone")], lambda count: None)


def test_a_file_that_grows_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(2 << 20))

    def grow(count: int) -> None:
        with path.open("ab") as file:
            file.write(b"x")

    with pytest.raises(Conflict, match="changed during the push"):
        digest([UploadPiece("a", path)], grow)


def test_a_file_that_changed_since_its_digest_is_not_opened(tmp_path: Path) -> None:
    path, other = tmp_path / "a", tmp_path / "b"

    def replace() -> None:
        other.write_bytes(b"abd")
        other.rename(path)

    for change in (lambda: os.utime(path, ns=(1, 1)), replace, lambda: path.write_bytes(b"abcd")):
        path.write_bytes(b"abc")
        [blob] = digest([UploadPiece("a", path)], lambda count: None)
        with blob.open() as file:
            assert file.read() == b"abc"
        change()
        with pytest.raises(Conflict, match="changed during the push"):
            blob.open()
