"""Tries and contracts over the admin API: what is answered, and what is refused."""

import base64
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi import FastAPI
from listeners.admin_scene import Client, application, assert_error, plane, play, send
from trying_desk import ROW, Desk, metadata

from serve.core.errors import Unavailable
from serve.listeners.admin.bounds import LARGEST, LARGEST_TRY

PATH = "/api/tries"


class Rows:
    """Stands for the data sets: notes what it is given."""

    def __init__(self) -> None:
        self.added: list[Any] = []

    async def add_row(self, *row: Any) -> None:
        self.added.append(row)


@pytest.fixture
def made(tmp_path: Path) -> tuple[FastAPI, Desk, Rows]:
    one = plane(tmp_path)
    desk, rows = Desk(one, tmp_path), Rows()
    app = application(one)
    app.state.control = replace(app.state.control, tries=desk.desk, datasets=rows)
    return app, desk, rows


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


def test_a_side_that_fails_is_no_failure_of_the_request(made: Any) -> None:
    app, desk, _ = made
    desk.gateway.scripted["2"] = Unavailable("nobody is there")
    one = play(app, lambda client: tried(client, b="2"))
    assert one["sides"][1]["error"]["what"] == "nobody is there"


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": {"x": {"form": "json", "data": "%%%"}}},
        {"inputs": {"x": {"form": "pickle"}}},
        {"inputs": {}},
        {"inputs": {"x": {"form": "json", "data": base64.b64encode(b"{").decode()}}},
        {"inputs": {"": {"form": "image", "data": base64.b64encode(b"GIF8").decode()}}},
        {"a": "../../etc"},
        {"via": "smtp"},
        {"batch": 0},
        {"surplus": 1},
    ],
)
def test_what_cannot_be_asked_is_refused_and_nothing_is_kept(app: FastAPI, change: Any) -> None:
    async def scenario(client: Client) -> Any:
        return await client.post(PATH, json=body() | change), (await client.get(PATH)).json()

    answer, listed = play(app, scenario)
    assert_error(answer, 422, "invalid")
    assert listed == []


def test_an_unknown_model_is_not_found(app: FastAPI) -> None:
    assert_error(send(app, "POST", PATH, body=body() | {"model": "no"}), 404, "unknown_model")


def test_more_may_be_given_here_than_elsewhere_but_not_anything(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        text, headers = json.dumps(body()), {"content-type": "application/json"}
        fits = await client.post(PATH, content=text + " " * (LARGEST + 1), headers=headers)
        large = await client.post(PATH, content=text + " " * LARGEST_TRY, headers=headers)
        return fits, large

    fits, large = play(app, scenario)
    assert fits.status_code == 201
    assert_error(large, 413, "body_too_large")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/request.json",
        "/request.bin",
        "/inputs.npz",
        "/outputs.npz",
        "/snippets",
        "/inputs/x.png",
    ],
)
@pytest.mark.parametrize("identity", ["0123456789abcdef", "nothing", "..%2F..%2Fetc"])
def test_of_a_try_that_there_is_not_nothing_is_found(
    app: FastAPI, identity: str, path: str
) -> None:
    assert send(app, "GET", f"{PATH}/{identity}{path}").status_code == 404


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


def test_what_triton_does_not_take_as_json_is_told(made: Any) -> None:
    app, desk, _ = made
    desk.gateway.described["1"] = metadata("FP16")

    async def scenario(client: Client) -> Any:
        one = await tried(client)
        return await client.get(f"{PATH}/{one['id']}/request.json")

    assert "FP16" in assert_error(play(app, scenario), 409, "conflict")["why"]


def test_snippets_name_the_host_by_which_the_api_was_asked(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        one = await tried(client)
        return (await client.get(f"{PATH}/{one['id']}/snippets")).json()

    found = play(app, scenario)
    assert [one["language"] for one in found] == ["curl", "python", "grpcurl"]
    assert "http://localhost:8000/v2/models/m/versions/1/infer" in found[0]["text"]


def test_the_input_of_a_try_becomes_a_row_of_a_data_set(made: Any) -> None:
    app, _, rows = made

    async def scenario(client: Client) -> Any:
        one = await tried(client)
        page = {"dataset": "held-out", "label": "7"}
        headers = {"servegate-author": "ada"}
        return one, await client.post(f"{PATH}/{one['id']}/dataset", json=page, headers=headers)

    one, answer = play(app, scenario)
    assert answer.status_code == 204
    assert rows.added == [("held-out", ROW, f"{one['id']}.json", "7", "ada")]


def test_versions_in_plain_folders_have_no_contract_and_are_told_how_to(app: FastAPI) -> None:
    async def scenario(client: Client) -> Any:
        one = await tried(client)
        saved = await client.post(f"{PATH}/{one['id']}/contract", json={"side": "a"})
        listed = await client.get("/api/models/m/versions/1/contract")
        examples = await client.get("/api/models/m/examples")
        unknown = await client.get("/api/models/m/versions/9/contract")
        return saved, listed, examples, unknown

    saved, listed, examples, unknown = play(app, scenario)
    for answer in (saved, listed):
        told = assert_error(answer, 409, "conflict")
        assert told["try_this"] == "servegate model push MODEL_REPOSITORY/m m"
    assert (examples.status_code, examples.json()) == (200, [])
    assert_error(unknown, 404, "unknown_version")


@pytest.mark.parametrize("page", [{"side": "c"}, {"atol": -1}, {"top1": 2}, {"rtol": 1e301}])
def test_tolerances_that_mean_nothing_are_refused(app: FastAPI, page: Any) -> None:
    async def scenario(client: Client) -> Any:
        one = await tried(client)
        return await client.post(f"{PATH}/{one['id']}/contract", json=page)

    assert_error(play(app, scenario), 422, "invalid")


def test_everything_is_documented(app: FastAPI) -> None:
    paths = app.openapi()["paths"]
    ours = {path: page for path, page in paths.items() if "tries" in path or "contract" in path}
    assert len(ours) == 12
    for page in ours.values():
        for told in page.values():
            assert told["summary"] and told["description"]
