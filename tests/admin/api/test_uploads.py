"""Uploads over the admin API: the protocol, its refusals, and real connections that break."""

import asyncio
import functools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from admin.api.admin_scene import SECRET, Client, application, assert_error, parts_of, play, send
from builders import until
from control.publishing import Scene
from control.storage_scene import DATA, digest, file, names_in
from fastapi import FastAPI

from serve.app.http_server import HttpServer
from serve.control.uploads.uploads import UploadLimits, Uploads

BODY = {"model": "digits", "files": [file().to_json()]}
PIECE = {"upload-offset": "0", "content-type": "application/offset+octet-stream"}
LARGE = bytes(1 << 20)


class Api:
    """The admin application over real uploads and publications."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "uploads"
        self.scene = Scene(folder)
        asyncio.run(self.scene.begin())
        self.app = self.made()

    def made(self, **changes: Any) -> FastAPI:
        return application(self.scene.plane, **(parts_of(self.scene) | changes))

    def send(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        return send(self.app, method, f"/api/uploads{path}", body=body, **headers)

    def patch(self, path: str, content: Any = DATA, **headers: str) -> httpx2.Response:
        named = PIECE | {name.replace("_", "-"): value for name, value in headers.items()}
        return play(self.app, lambda one: one.patch(path, content=content, headers=named))

    def begun(self) -> str:
        """The id of an upload of one file, `DATA`."""
        return str(self.send("POST", "", BODY, servegate_author="ada").json()["id"])

    def staged(self) -> bytes:
        """What has come of the file's blob."""
        path = self.folder / "staging" / f"{digest(DATA)}-{len(DATA)}"
        return path.read_bytes() if path.exists() else b""


def blob(identity: str, sha256: str = digest(DATA)) -> str:
    """The path of a blob."""
    return f"/api/uploads/{identity}/blobs/{sha256}"


@pytest.fixture
def api(tmp_path: Path) -> Api:
    return Api(tmp_path)


def test_an_upload_is_begun_sent_and_committed_once(api: Api) -> None:
    begun = api.send("POST", "", BODY, servegate_author="ada").json()
    assert begun["missing"] == [{"sha256": digest(DATA), "size": len(DATA), "offset": 0}]
    assert (begun["model"], begun["existing"]) == ("digits", None)
    sent = api.patch(blob(begun["id"]))
    assert (sent.status_code, sent.headers["upload-offset"]) == (204, str(len(DATA)))
    assert api.send("POST", "", BODY).json()["missing"] == []
    path = f"/{begun['id']}/commit"
    ask = {"labels": ["candidate"], "live": True, "git_commit": "4f2a91c", "tags": {"a": "b"}}
    committed = api.send("POST", path, ask, servegate_author="bob")
    told = {"model": "digits", "version": 1, "state": "uploaded"}
    assert (committed.status_code, committed.json()) == (202, told | {"created": True})
    version = api.scene.version("digits")
    assert (version.labels, version.live, version.tags) == (("candidate",), True, {"a": "b"})
    assert (version.provenance.author, version.provenance.git_commit) == ("bob", "4f2a91c")
    assert api.send("POST", "", BODY).json()["existing"] == 1
    assert api.send("POST", path, {}).json() == told | {"created": False}
    in_use = assert_error(api.send("DELETE", f"/{begun['id']}"), 409, "in_use")
    assert "version 1 of model 'digits'" in in_use["why"]


def test_a_blob_tells_where_it_goes_on(api: Api) -> None:
    identity = api.begun()
    path = blob(identity)
    api.patch(path, DATA[:1000])
    asked = play(api.app, lambda client: client.head(path))
    assert (asked.status_code, asked.content) == (200, b"")
    assert asked.headers["upload-offset"] == "1000"
    assert asked.headers["upload-length"] == str(len(DATA))
    elsewhere = api.patch(path, DATA[500:], upload_offset="500")
    assert_error(elsewhere, 409, "wrong_offset")
    assert elsewhere.headers["upload-offset"] == "1000"
    answer = api.send("POST", f"/{identity}/commit", {})
    assert "1/model.onnx" in assert_error(answer, 409, "conflict")["why"]


def test_uploads_are_listed_and_given_up(api: Api) -> None:
    identity = api.begun()
    [view] = api.send("GET", "").json()
    assert (view["id"], view["model"], view["files"]) == (identity, "digits", 1)
    assert (view["size"], view["author"]) == (len(DATA), "ada")
    assert api.send("DELETE", f"/{identity}").status_code == 204
    assert api.send("GET", "").json() == []
    assert_error(api.send("DELETE", f"/{identity}"), 404, "unknown_upload")


def test_bytes_that_do_not_fit_are_refused_and_nothing_of_them_is_kept(api: Api) -> None:
    path = blob(api.begun())
    changes: list[tuple[dict[str, Any], str]] = [
        ({"content_type": "text/plain"}, "invalid"),
        ({"upload_offset": "-1"}, "invalid"),
        ({"upload_offset": "x"}, "invalid"),
        ({"content": DATA + b"more"}, "invalid"),
        ({"content": b"x" * len(DATA)}, "digest_mismatch"),
    ]
    for change, code in changes:
        assert_error(api.patch(path, **change), 422, code)
        assert api.staged() == b"", change


def test_uploads_that_cannot_be_are_refused_before_anything_is_written(api: Api) -> None:
    one = file().to_json()
    many = [one | {"path": f"1/{n}"} for n in range(100_000)]
    limited = Uploads(api.folder, api.scene.storage, limits=UploadLimits(quota=100))
    api.app = api.made(uploads=limited)
    for model, files, status in (
        ("../x", [one], 422),
        ("digits", [one | {"path": "../x"}], 422),
        ("digits", [one | {"size": 1.5}], 422),
        ("digits", [one | {"mode": 511}], 422),
        ("digits", many, 413),
        ("digits", [one], 507),  # beyond the quota
    ):
        assert api.send("POST", "", {"model": model, "files": files}).status_code == status
    for path in (blob("nope"), blob("..%2F..%2Fetc"), "/api/uploads/nope/blobs/nope"):
        assert api.patch(path).status_code == 404
    assert names_in(api.folder) == []
    api.app = api.made(publishes=False)
    assert_error(api.send("POST", "", BODY), 403, "not_served")


def test_nobody_uploads_without_a_key_where_keys_are_needed(api: Api) -> None:
    path = blob(api.begun())
    api.app = api.made(needs_key=lambda guarded: True)
    assert_error(api.patch(path), 401, "unauthenticated")
    assert api.staged() == b""
    assert api.patch(path, authorization=f"Bearer {SECRET}").status_code == 204


def test_only_a_blob_may_be_larger_than_other_bodies_and_not_than_announced(api: Api) -> None:
    body = LARGE * 20
    uploads = api.scene.uploads
    upload = asyncio.run(uploads.begin("digits", [file(body)], "ada"))
    path = blob(upload.id, digest(body))

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield LARGE

    assert_error(api.patch(path, endless()), 422, "invalid")
    assert asyncio.run(uploads.offset(upload.id, digest(body))) == len(body)
    assert api.patch(path, b"", upload_offset=str(len(body))).status_code == 204
    for method, url in (("PATCH", f"{path}/x"), ("POST", path)):
        send_it = functools.partial(Client.request, method=method, url=url, content=LARGE * 9)
        assert play(api.app, send_it).status_code in (404, 405, 413)


def test_every_byte_of_a_connection_that_breaks_is_kept(api: Api) -> None:
    path = blob(api.begun())
    server = HttpServer(api.app, host="127.0.0.1", port=0, timeout_graceful_shutdown=2)

    async def scenario() -> tuple[int, int]:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(server.serve())
            await until(lambda: server.started)
            port = server.servers[0].sockets[0].getsockname()[1]
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            lines = [f"PATCH {path} HTTP/1.1", "host: localhost", f"content-length: {len(DATA)}"]
            lines += [f"{name}: {value}" for name, value in PIECE.items()]
            writer.write("\r\n".join([*lines, "", ""]).encode() + DATA[:7777])
            await until(lambda: len(api.staged()) == 7777)
            writer.transport.abort()
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
                offset = int((await client.head(path)).headers["upload-offset"])
                headers = PIECE | {"upload-offset": str(offset)}
                answer = await client.patch(path, content=DATA[offset:], headers=headers)
            server.should_exit = True
            return offset, answer.status_code

    assert asyncio.run(scenario()) == (7777, 204)
