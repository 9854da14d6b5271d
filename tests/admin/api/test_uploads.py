"""Uploads over the admin API: the protocol, its refusals, and real connections that break."""

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import SECRET, Client, assert_error, play, send
from admin.api.uploads_scene import BODY, PIECE, UploadsScene, blob, version
from builders import until
from control.storage_scene import DATA, digest, file, names_in

from serve.control.decisions import Decisions
from serve.control.storage.store import StoredEntry
from serve.control.uploads.uploads import UploadLimits
from serve.control.versions import VERSION
from serve.core.versions import VersionState

LARGE = bytes(1 << 20)


@pytest.fixture
def scene(tmp_path: Path) -> UploadsScene:
    return UploadsScene(tmp_path)


def patch(scene: UploadsScene, path: str, content: Any = DATA, **headers: str) -> httpx2.Response:
    named = PIECE | {name.replace("_", "-"): value for name, value in headers.items()}
    return play(
        scene.app(), lambda client: client.request("PATCH", path, content=content, headers=named)
    )


def test_an_upload_is_begun_sent_and_committed(scene: UploadsScene) -> None:
    begun = send(scene.app(), "POST", "/api/uploads", body=BODY, servegate_author="ada").json()
    assert begun["missing"] == [{"sha256": digest(DATA), "size": len(DATA), "offset": 0}]
    assert (begun["model"], begun["existing"]) == ("digits", None)
    sent = patch(scene, blob(begun["id"]))
    assert (sent.status_code, sent.headers["upload-offset"]) == (204, str(len(DATA)))
    assert send(scene.app(), "POST", "/api/uploads", body=BODY).json()["missing"] == []
    ask = {"labels": ["candidate"], "live": True, "git_commit": "4f2a91c", "tags": {"a": "b"}}
    committed = send(
        scene.app(), "POST", f"/api/uploads/{begun['id']}/commit", body=ask, servegate_author="ada"
    )
    assert (committed.status_code, committed.json()) == (
        202,
        {"model": "digits", "version": 1, "state": "uploaded", "created": True},
    )
    [(upload, asked, by)] = scene.publications.asked
    assert (upload.id, upload.author, by.author) == (begun["id"], "ada", "ada")
    assert (asked.labels, asked.live, asked.again) == (("candidate",), True, False)
    assert (asked.git_commit, asked.tags) == ("4f2a91c", {"a": "b"})


def test_content_that_there_is_already_is_told_and_not_made_again(scene: UploadsScene) -> None:
    identity = scene.begun()
    scene.publications.known = version(scene.uploads.get(identity), 7, VersionState.PUBLISHED)
    assert send(scene.app(), "POST", "/api/uploads", body=BODY).json()["existing"] == 7
    patch(scene, blob(identity))
    committed = send(scene.app(), "POST", f"/api/uploads/{identity}/commit", body={})
    told = {"model": "digits", "version": 7, "state": "published", "created": False}
    assert committed.json() == told


def test_a_blob_tells_where_it_goes_on(scene: UploadsScene) -> None:
    identity = scene.begun()
    path = blob(identity)
    patch(scene, path, DATA[:1000])
    asked = play(scene.app(), lambda client: client.head(path))
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["upload-offset"] == "1000"
    assert asked.headers["upload-length"] == str(len(DATA))
    elsewhere = patch(scene, path, DATA[500:], upload_offset="500")
    assert_error(elsewhere, 409, "wrong_offset")
    assert elsewhere.headers["upload-offset"] == "1000"
    answer = send(scene.app(), "POST", f"/api/uploads/{identity}/commit", body={})
    assert "1/model.onnx" in assert_error(answer, 409, "conflict")["why"]
    assert scene.publications.asked == []


def test_uploads_are_listed_and_given_up(scene: UploadsScene) -> None:
    identity = scene.begun()
    [view] = send(scene.app(), "GET", "/api/uploads").json()
    assert (view["id"], view["model"], view["files"]) == (identity, "digits", 1)
    assert (view["size"], view["author"]) == (len(DATA), "ada")
    assert send(scene.app(), "DELETE", f"/api/uploads/{identity}").status_code == 204
    assert send(scene.app(), "GET", "/api/uploads").json() == []
    again = send(scene.app(), "DELETE", f"/api/uploads/{identity}")
    assert_error(again, 404, "unknown_upload")


def test_an_upload_that_is_being_published_is_not_given_up(scene: UploadsScene) -> None:
    identity = scene.begun()
    record = version(scene.uploads.get(identity))
    scene.plane.decisions = Decisions({(VERSION, record.key): StoredEntry(record.to_body(), 1)})
    answer = send(scene.app(), "DELETE", f"/api/uploads/{identity}")
    assert "version 1 of model 'digits'" in assert_error(answer, 409, "in_use")["why"]
    assert scene.uploads.get(identity)


def test_bytes_that_do_not_fit_are_refused_and_nothing_of_them_is_kept(
    scene: UploadsScene,
) -> None:
    path = blob(scene.begun())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"content_type": "text/plain"}, "invalid"),
        ({"upload_offset": "-1"}, "invalid"),
        ({"upload_offset": "x"}, "invalid"),
        ({"content": DATA + b"more"}, "invalid"),
        ({"content": b"x" * len(DATA)}, "digest_mismatch"),
    ]
    for change, code in changes:
        assert_error(patch(scene, path, **change), 422, code)
        assert scene.staged() == b"", change


def test_uploads_that_cannot_be_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    scene = UploadsScene(tmp_path, limits=UploadLimits(quota=100))
    one = file().to_json()
    many = [one | {"path": f"1/{n}"} for n in range(100_000)]
    for model, files, status in (
        ("../x", [one], 422),
        ("digits", [one | {"path": "../x"}], 422),
        ("digits", [one | {"size": 1.5}], 422),
        ("digits", [one | {"mode": 511}], 422),
        ("digits", many, 413),
        ("digits", [one], 507),  # beyond the quota
    ):
        body = {"model": model, "files": files}
        assert send(scene.app(), "POST", "/api/uploads", body=body).status_code == status
    for path in (blob("nope"), blob("..%2F..%2Fetc"), "/api/uploads/nope/blobs/nope"):
        assert patch(scene, path).status_code == 404
    assert names_in(scene.folder) == []
    answer = send(scene.app(publishes=False), "POST", "/api/uploads", body=BODY)
    assert_error(answer, 403, "not_served")


def test_nobody_uploads_without_a_key_where_keys_are_needed(tmp_path: Path) -> None:
    scene = UploadsScene(tmp_path, needs_key=True)
    path = blob(scene.begun())
    assert_error(patch(scene, path), 401, "unauthenticated")
    assert scene.staged() == b""
    assert patch(scene, path, authorization=f"Bearer {SECRET}").status_code == 204


def test_a_blob_may_be_larger_than_other_bodies_but_not_than_announced(
    scene: UploadsScene,
) -> None:
    body = LARGE * 20
    upload = asyncio.run(scene.uploads.begin("digits", [file(body)], "ada"))
    path = blob(upload.id, digest(body))

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield LARGE

    assert_error(patch(scene, path, endless()), 422, "invalid")
    assert asyncio.run(scene.uploads.offset(upload.id, digest(body))) == len(body)
    assert patch(scene, path, b"", upload_offset=str(len(body))).status_code == 204


def test_only_the_path_of_a_blob_takes_a_large_body(scene: UploadsScene) -> None:
    identity = scene.begun()
    for method, path in (("PATCH", f"{blob(identity)}/x"), ("POST", blob(identity))):
        send_it = functools.partial(Client.request, method=method, url=path, content=LARGE * 9)
        assert play(scene.app(), send_it).status_code in (404, 405, 413)


def test_every_byte_of_a_connection_that_breaks_is_kept(scene: UploadsScene) -> None:
    path = blob(scene.begun())

    async def scenario() -> None:
        async with scene.served() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = [f"PATCH {path} HTTP/1.1", "host: localhost", f"content-length: {len(DATA)}"]
            lines += [f"{name}: {value}" for name, value in PIECE.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + DATA[:7777])
            await until(lambda: len(scene.staged()) == 7777)
            writer.transport.abort()
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                offset = int((await client.head(path)).headers["upload-offset"])
                headers = PIECE | {"upload-offset": str(offset)}
                answer = await client.patch(path, content=DATA[offset:], headers=headers)
        assert (offset, answer.status_code) == (7777, 204)

    asyncio.run(scenario())
