"""Tries and contracts over the admin API: what is answered, and what is refused."""

import base64
import io
import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from admin.api.admin_scene import Client, application, assert_error, plane, play, send
from fastapi import FastAPI
from trying_desk import ROW, Desk, metadata

from serve.admin.api.bounds import LARGEST, LARGEST_TRY
from serve.admin.api.features import FeatureWeb

PATH = "/api/tries"


class Rows:
    """Stands for the data sets: notes what it is given."""

    def __init__(self) -> None:
        self.added: list[Any] = []

    async def add(self, *row: Any) -> None:
        self.added.append(row)


@pytest.fixture
def made(tmp_path: Path) -> tuple[FastAPI, Desk, Rows]:
    one = plane(tmp_path)
    desk, rows = Desk(one, tmp_path), Rows()
    features = (FeatureWeb(name="rows", rows=cast(Any, rows)),)
    return application(one, tries=desk.desk, features=features), desk, rows


@pytest.fixture
def app(made: tuple[FastAPI, Desk, Rows]) -> FastAPI:
    return made[0]


def body(data: bytes = ROW, **more: Any) -> dict[str, Any]:
    sent = base64.b64encode(data).decode()
    return {"model": "m", "a": "1", "inputs": {"x": {"form": "json", "data": sent}}, **more}


async def tried(client: Client, **more: Any) -> Any:
    answer = await client.post(PATH, json=body(**more), headers={"servegate-author": "ada"})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_a_try_is_made_shown_listed_and_removed(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        one = await tried(client, b="2")
        shown = await client.get(f"{PATH}/{one['id']}")
        listed = await client.get(PATH, params={"model": "m"})
        removed = await client.delete(f"{PATH}/{one['id']}")
        after = await client.get(f"{PATH}/{one['id']}")
        return one, shown.json(), listed.json(), removed.status_code, after

    one, shown, (line,), removed, after = play(app, scenario)
    assert shown == one
    assert (one["author"], one["via"], len(one["sides"])) == ("ada", "http", 2)
    assert one["difference"]["y"]["max_abs"] == 2
    assert (line["id"], line["asked"]) == (one["id"], ["1", "2"])
    assert removed == 204
    assert_error(after, 404, "not_found")


def test_what_cannot_be_asked_is_refused_and_nothing_is_kept(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        for change in (
            {"inputs": {"x": {"form": "json", "data": "%%%"}}},
            {"inputs": {"x": {"form": "pickle"}}},
            {"a": "../../etc"},
            {"via": "smtp"},
            {"batch": 0},
            {"surplus": 1},
        ):
            assert_error(await client.post(PATH, json=body() | change), 422, "invalid")
        unknown = await client.post(PATH, json=body() | {"model": "no"})
        assert_error(unknown, 404, "unknown_model")
        return (await client.get(PATH)).json()

    assert play(app, scenario) == []


def test_of_a_try_that_there_is_not_nothing_is_found(app: FastAPI) -> None:
    paths = "", "/request.json", "/request.bin", "/inputs.npz", "/outputs.npz", "/snippets"
    for identity in ("0123456789abcdef", "..%2F..%2Fetc"):
        for path in (*paths, "/inputs/x.png"):
            assert send(app, "GET", f"{PATH}/{identity}{path}").status_code == 404


def test_more_may_be_given_here_than_elsewhere_but_not_anything(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        text, headers = json.dumps(body()), {"content-type": "application/json"}
        fits = await client.post(PATH, content=text + " " * (LARGEST + 1), headers=headers)
        large = await client.post(PATH, content=text + " " * LARGEST_TRY, headers=headers)
        return fits, large

    fits, large = play(app, scenario)
    assert fits.status_code == 201
    assert_error(large, 413, "body_too_large")


def test_tensors_and_requests_can_be_fetched(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        one = await tried(client, b="2")
        parts = ("request.json", "request.json?via=grpc", "request.bin", "inputs.npz")
        found = [await client.get(f"{PATH}/{one['id']}/{part}") for part in parts]
        answered = await client.get(f"{PATH}/{one['id']}/outputs.npz", params={"side": "b"})
        return [*found, answered]

    plain, grpc, binary, inputs, outputs = play(app, scenario)
    (sent,) = plain.json()["inputs"]
    assert sent == {"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [[1, 2]]}
    assert (grpc.json()["model_name"], grpc.json()["model_version"]) == ("m", "1")
    length = int(binary.headers["inference-header-content-length"])
    assert binary.content[length:] == np.array([[1, 2]], np.float32).tobytes()
    assert np.load(io.BytesIO(inputs.content))["x"].tolist() == [[1, 2]]
    assert np.load(io.BytesIO(outputs.content))["y"].tolist() == [[2, 4]]
    assert outputs.headers["x-content-type-options"] == "nosniff"


def test_a_try_becomes_snippets_and_a_row_of_a_data_set_but_not_always_json(made: Any) -> None:
    app, desk, rows = made

    async def scenario(client: Client) -> None:
        one = await tried(client)
        found = (await client.get(f"{PATH}/{one['id']}/snippets")).json()
        assert [snippet["language"] for snippet in found] == ["curl", "python", "grpcurl"]
        url = "http://localhost:8000/v2/models/m/versions/1/infer"
        assert url in found[0]["text"], "the host is the one by which the API was asked"
        page = {"dataset": "held-out", "label": "7"}
        headers = {"servegate-author": "ada"}
        answer = await client.post(f"{PATH}/{one['id']}/dataset", json=page, headers=headers)
        assert answer.status_code == 204
        assert rows.added == [("held-out", ROW, f"{one['id']}.json", "7", "ada")]
        desk.gateway.described["1"] = metadata("FP16")
        other = await tried(client)
        answer = await client.get(f"{PATH}/{other['id']}/request.json")
        assert "FP16" in assert_error(answer, 409, "conflict")["why"]

    play(app, scenario)


def test_versions_in_plain_folders_have_no_contract_and_are_told_how_to(app: FastAPI) -> None:
    async def scenario(client: Client) -> None:
        path = f"{PATH}/{(await tried(client))['id']}/contract"
        saved = await client.post(path, json={"side": "a"})
        listed = await client.get("/api/models/m/versions/1/contract")
        for answer in (saved, listed):
            told = assert_error(answer, 409, "conflict")
            assert told["try_this"] == "servegate model push MODEL_REPOSITORY/m m"
        for page in ({"side": "c"}, {"atol": -1}, {"top1": 2}, {"rtol": 1e301}):
            assert_error(await client.post(path, json=page), 422, "invalid")
        assert (await client.get("/api/models/m/examples")).json() == []
        unknown = await client.get("/api/models/m/versions/9/contract")
        assert_error(unknown, 404, "unknown_version")

    play(app, scenario)
