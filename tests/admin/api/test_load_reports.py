"""Load reports over the admin API: kept as they were sent, drawn anew, and refused when damaged."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from admin.api.admin_scene import Client, application, plane, play
from fastapi import FastAPI
from workbench.loadtest.records import report_of, run_of

PATH = "/api/load/reports"


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return application(plane(tmp_path))


def page(name: str = "20261122-101500-digits-smoke", **changes: Any) -> dict[str, Any]:
    report = replace(report_of(run_of(3, 20.0)), name=name, model="digits", **changes)
    document: dict[str, Any] = json.loads(json.dumps(report.to_json()))
    return document


async def keep(client: Client, document: Any) -> Any:
    answer = await client.post(PATH, json=document, headers={"servegate-author": "ada"})
    return answer.status_code, answer.json()


def test_a_report_is_kept_as_it_was_sent_and_listed(app: FastAPI) -> None:
    sent = page(findings=("it was quick",), passed=True)

    async def scenario(client: Client) -> Any:
        status, line = await keep(client, sent)
        assert status == 201
        assert (await client.get(PATH)).json() == [line]
        return line, (await client.get(f"{PATH}/{sent['name']}")).json()

    line, kept = play(app, scenario)
    assert kept == sent
    assert (line["name"], line["model"], line["author"]) == (sent["name"], "digits", "ada")
    assert (line["finding"], line["passed"]) == ("it was quick", True)


def test_the_page_is_drawn_here_and_runs_no_script(app: FastAPI) -> None:
    evil = page(title="<script>alert(1)</script>", findings=("<img onerror=x>",))

    async def scenario(client: Client) -> Any:
        await keep(client, evil)
        return await client.get(f"{PATH}/{evil['name']}/report.html")

    answer = play(app, scenario)
    assert answer.status_code == 200
    assert "sandbox" in answer.headers["content-security-policy"]
    assert "<script" not in answer.text and "<img" not in answer.text
    assert "&lt;script&gt;" in answer.text


def test_the_same_report_may_come_twice_and_another_of_its_name_may_not(app: FastAPI) -> None:
    name = page()["name"]

    async def scenario(client: Client) -> None:
        assert await keep(client, page()) == await keep(client, page())
        status, error = await keep(client, page(findings=("something else",)))
        assert (status, error["code"]) == (409, "conflict")
        assert len((await client.get(PATH)).json()) == 1
        removed = [await client.delete(f"{PATH}/{name}") for _ in range(2)]
        assert [answer.status_code for answer in removed] == [204, 404]
        assert (await client.get(f"{PATH}/{name}")).json()["code"] == "not_found"

    play(app, scenario)


def test_what_cannot_be_read_or_drawn_is_refused_and_nothing_is_kept(app: FastAPI) -> None:
    damages: list[dict[str, Any]] = [
        {"format": 2},
        {"runs": [{}]},
        {"runs": 3},
        {"name": "../../etc/passwd"},
        {"name": ""},
        {"sweep": {"x": "batch"}},
    ]

    async def scenario(client: Client) -> None:
        for damage in damages:
            status, error = await keep(client, page() | damage)
            assert (status, error["code"]) == (422, "invalid")
        answer = await client.post(PATH, content=b"<html>")
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid")
        assert (await client.get(PATH)).json() == []

    play(app, scenario)
