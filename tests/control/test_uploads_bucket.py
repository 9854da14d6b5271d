"""Uploads into a bucket of a real S3 server, which is sometimes away."""

import asyncio
from pathlib import Path

import pytest
from control.storage_scene import DATA, digest, file, listed, names_in, pieces
from object_store import ObjectStore

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.uploads.uploads import Uploads
from serve.core.errors import Unavailable

LARGE = DATA * 2000  # 20 MB: several parts


def test_a_blob_goes_into_the_bucket_and_waits_while_its_server_is_away(
    s3: ObjectStore, tmp_path: Path
) -> None:
    async def sent(uploads: Uploads, identity: str) -> int:
        parts = pieces(*(LARGE[n : n + 65536] for n in range(0, len(LARGE), 65536)))
        return await uploads.append(identity, digest(LARGE), 0, parts)

    url = s3.bucket()
    away = ArtifactStorage.of(url, **(s3.config | {"endpoint": "http://127.0.0.1:9"}))
    uploads = Uploads(tmp_path, ArtifactStorage.of(url, **s3.config))
    upload = asyncio.run(uploads.begin("digits", [file(LARGE)], "ada"))
    staging = tmp_path / "staging" / f"{digest(LARGE)}-{len(LARGE)}"
    staging.write_bytes(LARGE)
    with pytest.raises(Unavailable):
        asyncio.run(Uploads(tmp_path, away).require_whole(upload.id))
    assert staging.read_bytes() == LARGE
    staging.unlink()
    assert asyncio.run(sent(uploads, upload.id)) == len(LARGE)
    assert names_in(tmp_path / "staging") == []
    storage = ArtifactStorage.of(url, **s3.config)
    [(sha256, size, _)] = asyncio.run(listed(storage.blobs()))
    assert asyncio.run(storage.read(sha256, most=size)) == LARGE
