"""The admin API over HTTP: what can be asked and changed, and the shape of every error."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import httpx2
import pytest
from admin.api.admin_scene import Client, application, assert_error, plane, play, send
from builders import ControlPlane

from serve.control.discovery import Discovering
from serve.control.observations import LoadFailure
from serve.core.errors import Unavailable
from serve.core.replicas import Replica
from serve.triton.discovery.endpoints import Endpoint, Listing
from serve.triton.discovery.source import Listener
from serve.triton.metrics import GpuReading, ModelReading, ReplicaScrape

HALVES = {"split": {"1": 50, "2": 50}}
ONE = {"split": {"1": 1}}
NO_RULES: dict[str, Any] = {"sticky": "", "matches": [], "fallback": 0, "mirror": None}
UNRULED = NO_RULES | {"deadline": 0.0, "idempotent": False}
UNKNOWN = {"9": 0, "1": 1}
ROUTE, LABEL, MODEL = "/api/routes/m", "/api/models/m/labels/stable", "/api/models/m"
REFUSED: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/models/nope", None, 404, "unknown_model"),
    ("GET", "/api/routes/nope", None, 404, "unknown_model"),
    ("PUT", "/api/routes/nope", HALVES, 404, "unknown_model"),
    ("PUT", ROUTE, {"split": {"9": 1}}, 404, "unknown_version"),
    ("PUT", ROUTE, {"split": {"3": 1}}, 409, "version_not_ready"),
    ("PUT", ROUTE, {"split": {"1": 1.5}}, 422, "invalid"),
    ("PUT", ROUTE, {"split": {"new": 1}}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"more": 1}, 422, "invalid"),
    ("PUT", ROUTE, None, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"sticky": "cookie"}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"matches": [{"split": {"2": 1}}]}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"matches": [{"key": "3f", "split": {"3": 1}}]}, 409, "version_not_ready"),
    ("PUT", ROUTE, ONE | {"matches": [{"key": "3f", "split": UNKNOWN}]}, 404, "unknown_version"),
    ("PUT", ROUTE, ONE | {"matches": [{"key": "3f", "split": {"2": 1}}] * 21}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"mirror": {"percent": 20}}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"mirror": {"version": 2}}, 422, "invalid"),
    ("PUT", ROUTE, ONE | {"mirror": {"version": 3, "percent": 5}}, 409, "version_not_ready"),
    ("PUT", LABEL, {"version": 3}, 409, "version_not_ready"),
    ("PUT", "/api/models/m/labels/7", {"version": 1}, 422, "invalid"),
    ("PUT", f"{LABEL}%0A", {"version": 1}, 422, "invalid"),
    ("DELETE", LABEL, None, 404, "unknown_label"),
    ("PATCH", MODEL, {"objective": "fast"}, 422, "invalid"),
    ("PATCH", MODEL, {"colour": "blue"}, 422, "invalid"),
    ("GET", "/api/nothing", None, 404, "not_here"),
    ("POST", "/api/models", None, 405, "method_not_allowed"),
]
READ = ReplicaScrape(
    {("m", 1): ModelReading(5, 0, 5, 5, 3, 0.0, 0.0)}, {"GPU-1": GpuReading(0.5, 1, 2, 3)}, 0.25
)


async def read(one: Replica) -> ReplicaScrape | None:
    """Replica `a` tells its metrics, the others do not."""
    return READ if one.name == "a" else None


def ask(
    one: ControlPlane, method: str, path: str, *, body: Any = None, **headers: str
) -> httpx2.Response:
    return send(application(one, readings=read), method, path, body=body, **headers)


def test_models_are_listed_and_shown_with_what_was_recorded(tmp_path: Path) -> None:
    one = plane(tmp_path)
    [model] = ask(one, "GET", "/api/models").json()
    assert (model["name"], model["state"], model["split"]) == ("m", "partial", {"2": 100})
    assert [version["state"] for version in model["versions"]] == ["ready", "ready", "loading"]
    answer = ask(one, "GET", "/api/models/m")
    assert answer.json()["card"] == {"summary": "a model"}
    assert answer.headers["etag"] == '"0"'
    assert ask(one, "GET", "/livez").status_code == 200
    assert ask(one, "GET", "/metrics").text == "# metrics\n"


def test_a_route_is_put_and_shown_and_keeps_what_a_later_one_does_not_name(tmp_path: Path) -> None:
    one = plane(tmp_path)
    rules = {"sticky": "key", "matches": [{"header": "X-Team", "value": "b*", "split": {"2": 1}}]}
    put = ask(one, "PUT", ROUTE, body=HALVES | rules)
    shown = ask(one, "GET", ROUTE)
    generation = one.publisher.snapshot.generation
    assert put.json() == {"generation": generation, "in_force": True}
    match = {"header": "x-team", "value": "b*", "key": "", "split": {"2": 1}}
    kept = UNRULED | {"model": "m", "routed": True, "sticky": "key", "matches": [match]}
    assert shown.json() == HALVES | kept
    assert put.headers["etag"] == shown.headers["etag"] != '"0"'
    ask(one, "PUT", ROUTE, body=ONE)
    assert ask(one, "GET", ROUTE).json() == ONE | kept
    cleared = {"sticky": "", "matches": []}
    ask(one, "PUT", ROUTE, body=ONE | cleared)
    assert ask(one, "GET", ROUTE).json() == ONE | kept | cleared
    asyncio.run(one.publisher.poll("worker-0", 0, 0))
    put = ask(one, "PUT", ROUTE, body=HALVES)
    assert put.json()["in_force"] is False, "a worker has not acknowledged it"


def test_of_several_routes_none_is_set_when_one_was_changed_meanwhile(tmp_path: Path) -> None:
    one = plane(tmp_path)
    ask(one, "PUT", "/api/routes/m", body=HALVES)
    [listed] = ask(one, "GET", "/api/routes").json()
    assert (listed["model"], listed["split"]) == ("m", HALVES["split"])
    for etag, status in (('"0"', 412), (listed["etag"], 200), (listed["etag"], 412), ("", 200)):
        body = {"routes": {"m": ONE | {"etag": etag}}}
        assert ask(one, "PUT", "/api/routes", body=body).status_code == status, etag
    body = {"routes": {"m": HALVES | {"etag": listed["etag"]}}}
    rehearsed = ask(one, "PUT", "/api/routes?dry_run=true", body=body)
    assert rehearsed.status_code == 412
    assert ask(one, "GET", "/api/routes/m").json()["split"] == ONE["split"]


def test_who_and_why_are_taken_from_the_headers(tmp_path: Path) -> None:
    one = plane(tmp_path)
    ask(one, "PUT", "/api/routes/m", body=HALVES, servegate_author="ada", servegate_reason="test")
    ask(one, "PUT", "/api/models/m/labels/stable", body={"version": 1})
    ask(one, "PUT", "/api/routes/m", body=ONE, servegate_reason="f%C3%BCr%20100%25")
    rows = asyncio.run(one.store.history())
    found = [(row["author"], row["reason"]) for row in rows]
    assert found == [("anonymous", "für 100%"), ("anonymous", ""), ("ada", "test")]


def test_of_two_people_who_read_the_same_route_the_second_is_refused(tmp_path: Path) -> None:
    one = plane(tmp_path)
    seen = ask(one, "GET", "/api/routes/m").headers["etag"]
    first = ask(one, "PUT", "/api/routes/m", body=HALVES, if_match=seen)
    second = ask(one, "PUT", "/api/routes/m", body={"split": {"1": 1}}, if_match=seen)
    assert first.status_code == 200
    body = assert_error(second, 412, "precondition_failed")
    assert first.headers["etag"] in body["why"]
    assert ask(one, "GET", "/api/routes/m").json()["split"] == {"1": 50, "2": 50}


def test_what_cannot_be_is_refused_in_one_shape(tmp_path: Path) -> None:
    one = plane(tmp_path)
    for method, path, body, status, code in REFUSED:
        assert_error(ask(one, method, path, body=body), status, code)
    assert asyncio.run(one.store.read()) == {}
    answer = ask(one, "PUT", LABEL, body={"version": "x"})
    assert "body.version" in assert_error(answer, 422, "invalid")["why"]


def test_a_store_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    one = plane(tmp_path)
    (tmp_path / "control.sqlite").unlink()
    (tmp_path / "control.sqlite").mkdir()
    one.store.close()
    assert_error(ask(one, "PUT", ROUTE, body=HALVES), 503, "unavailable")


def test_labels_and_settings_are_set_one_by_one(tmp_path: Path) -> None:
    one = plane(tmp_path)
    assert ask(one, "PUT", LABEL, body={"version": 1}).headers["etag"] == '"1"'
    ask(one, "PATCH", MODEL, body={"objective": "p99<50ms"})
    ask(one, "PATCH", MODEL, body={"pool": "default"})  # which leaves the objective
    shown = ask(one, "GET", MODEL).json()
    assert (shown["labels"], shown["objective"]) == ({"stable": 1}, "p99<50ms")
    ask(one, "DELETE", LABEL)
    assert ask(one, "GET", MODEL).json()["labels"] == {}


def test_replicas_are_shown_with_what_they_hold_lack_and_measure(tmp_path: Path) -> None:
    one = plane(tmp_path)
    one.fleet.failures["a", "m"] = LoadFailure("bad file", (), 1, 0.0)
    one.clock.now += 12.34
    assert ask(one, "GET", "/api/discovery").json() == []
    a, b = ask(one, "GET", "/api/replicas").json()
    assert (a["zone"], b["zone"]) == ("", "")
    assert (a["state"], a["held"], a["failures"]) == ("up", {"m": [1, 2]}, {"m": "bad file"})
    assert (a["pending"], a["cpu_utilization"], a["gpu_utilization"]) == (3, 0.25, {"GPU-1": 0.5})
    gpu = {"utilization": 0.5, "memory_used": 1.0, "memory_total": 2.0, "power": 3.0}
    assert a["gpus"] == {"GPU-1": gpu}
    assert a["seconds"] == 12.3
    assert (b["state"], b["pending"], b["seconds"]) == ("lost", None, 12.3)


def test_a_replica_that_gets_no_new_calls_is_shown_as_being_prepared(tmp_path: Path) -> None:
    one = plane(tmp_path)

    def preparing() -> list[bool]:
        return [replica["preparing"] for replica in ask(one, "GET", "/api/replicas").json()]

    assert preparing() == [False, False]
    one.fleet.joining.update("ab")  # b is lost
    assert preparing() == [True, False]
    one.fleet.joining.clear()
    with one.fleet.steering("a"):
        assert preparing() == [True, False]


def test_a_folder_whose_name_is_no_text_is_listed_with_its_problem(tmp_path: Path) -> None:
    one = plane(tmp_path)
    Path(os.fsdecode(os.fsencode(one.repository) + b"/\xff/1")).mkdir(parents=True)
    asyncio.run(one.inventory.scan())
    answer = ask(one, "GET", "/api/models")
    assert answer.status_code == 200
    assert sorted(model["state"] for model in answer.json()) == ["failed", "partial"]


def test_the_api_answers_under_its_own_names_and_no_others(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    for host, status in (
        ("localhost", 200),
        ("localhost:9999", 200),
        ("LOCALHOST", 200),
        ("[::1]:8080", 200),
        ("evil.example", 400),
        ("localhost.evil.example", 400),
        ("127.0.0.2", 400),
    ):
        answer = play(app, lambda client: client.get("/api/models"), host=host)
        assert answer.status_code == status, host


def test_every_operation_has_a_summary_and_every_body_an_example(tmp_path: Path) -> None:
    document = ask(plane(tmp_path), "GET", "/openapi.json").json()
    operations = [one for path in document["paths"].values() for one in path.values()]
    bodies = [one["requestBody"] for one in operations if "requestBody" in one]
    assert len(bodies) >= 3
    assert not [path for path in document["paths"] if path.startswith("/internal")]
    assert all(one["summary"] for one in operations)
    documents = [body["content"] for body in bodies if "application/json" in body["content"]]
    for content in documents:
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][name]["examples"], name


async def _pieces(count: int) -> AsyncIterator[bytes]:
    """A body of this many MiB, piece by piece, that never says how long it is."""
    for _ in range(count):
        yield bytes(1 << 20)


@pytest.mark.parametrize(("method", "path"), [("PUT", ROUTE), ("POST", "/internal/management")])
def test_a_body_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, method: str, path: str
) -> None:
    app = application(plane(tmp_path))
    answer = play(app, lambda client: client.request(method, path, content=_pieces(1000)))
    body = assert_error(answer, 413, "body_too_large")
    assert "8388608 bytes" in body["what"] and body["try_this"] == ""


def test_a_body_of_another_content_type_is_told_the_missing_header(tmp_path: Path) -> None:
    app = application(plane(tmp_path))
    for kind in ("", "text/plain", "application/x-www-form-urlencoded"):
        headers = {"content-type": kind} if kind else {}
        answer = play(app, lambda one, named=headers: one.put(ROUTE, content=b"{}", headers=named))
        body = assert_error(answer, 422, "invalid")
        assert body["what"] == "the body is not JSON"
        assert body["why"] == f"the content type is {kind or 'missing'}"
        assert "content-type: application/json" in body["try_this"]


# --- discovery -----------------------------------------------------------------------------------


class FakeSource:
    """Names replica a and fails, or says nothing."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self._endpoints = endpoints

    async def run(self, listener: Listener) -> None:
        if self._endpoints:
            listener.told(Listing(self._endpoints, ("odd",)))
            listener.failed(Unavailable("it is away"))
        await asyncio.Event().wait()


def test_every_source_is_listed_and_a_replica_has_the_zone_that_one_tells(tmp_path: Path) -> None:
    one = plane(tmp_path)
    found = Endpoint(Replica("a", "host", 1, 2, 3), zone="eu-1b")
    discovering = Discovering(
        {"kubernetes": FakeSource(found), "dns=x:1:2:3": FakeSource()},
        [],
        fleet=one.fleet,
        membership=cast(Any, None),  # before all have told their list nobody is told of it
        may_be_empty=lambda: False,
        clock=one.clock,
    )
    app = application(one, discovering=discovering)

    async def look(client: Client) -> tuple[Any, Any]:
        running = asyncio.create_task(discovering.run())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        one.clock.now += 7
        answers = await client.get("/api/discovery"), await client.get("/api/replicas")
        running.cancel()
        return answers[0].json(), answers[1].json()

    sources, (a, b) = play(app, look)
    away = {"name": "kubernetes", "endpoints": 1, "why": "it is away", "problems": ["odd"]}
    silent = {"name": "dns=x:1:2:3", "endpoints": None, "why": "it has not answered yet"}
    down = {"up": False, "seconds": 7.0}
    assert sources == [down | away, down | silent | {"problems": []}]
    assert (a["zone"], b["zone"]) == ("eu-1b", "")
