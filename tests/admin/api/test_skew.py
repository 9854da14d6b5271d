"""The skew check over the admin API: a version's record against samples that are sent."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from admin.api.admin_scene import application, assert_error, plane, play
from fastapi import FastAPI

RECORD = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32", "divide": 255}
PICTURES = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
TENSORS = (PICTURES.astype(np.float32) / np.float32(255))[..., np.newaxis]


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    one = plane(tmp_path)
    record = one.repository / "m" / "preprocessing.json"
    record.write_text(json.dumps({"inputs": {"x": RECORD}}))
    asyncio.run(one.inventory.scan())
    return application(one)


def npz(**arrays: Any) -> bytes:
    held = io.BytesIO()
    np.savez(held, **{name.replace("_", "/", 1): array for name, array in arrays.items()})
    return held.getvalue()


def send(app: FastAPI, data: bytes, path: str = "m/skew") -> httpx2.Response:
    return play(app, lambda client: client.post(f"/api/models/{path}", content=data))


def test_samples_that_become_the_tensors_are_not_skewed(app: FastAPI) -> None:
    answer = send(app, npz(raw_x=PICTURES, tensor_x=TENSORS))
    assert answer.status_code == 200
    page = answer.json()
    (found,) = page["inputs"]
    assert (page["skewed"], found["equal"], found["causes"]) == (False, 3, [])


def test_a_skew_is_told_with_its_cause(app: FastAPI) -> None:
    page = send(app, npz(raw_x=PICTURES, tensor_x=TENSORS * 255), "m/skew?version=2").json()
    (found,) = page["inputs"]
    assert page["skewed"] and found["first_differing_row"] == 0
    assert found["causes"][0]["change"] == {"divide": None}


def test_what_cannot_be_checked_is_refused(app: FastAPI, tmp_path: Path) -> None:
    samples = npz(raw_x=PICTURES, tensor_x=TENSORS)
    for data, path, status, code in (
        (b"no archive", "m/skew", 422, "invalid"),
        (b"", "m/skew", 422, "invalid"),
        (npz(raw_y=PICTURES, tensor_y=TENSORS), "m/skew", 422, "invalid"),
        (samples, "nobody/skew", 404, "unknown_model"),
        (samples, "m/skew?version=9", 404, "unknown_version"),
        (samples, "m/skew?version=0", 422, "invalid"),
        (bytes((1 << 23) + 1), "m/skew", 413, "body_too_large"),
    ):
        assert_error(send(app, data, path), status, code)
    (tmp_path / "plain").mkdir()
    answer = send(application(plane(tmp_path / "plain")), samples)
    assert "preprocessing.json" in assert_error(answer, 422, "invalid")["try_this"]
