"""API keys over the admin API, sessions, and who may ask for anything once there is a key."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
from admin.api.admin_scene import SECRET, application, assert_error, plane, play, send
from builders import ControlPlane
from fastapi.routing import APIRoute

from serve.admin.api.sessions import LASTS, is_valid, session_of
from serve.control.models import By
from serve.core.access import ApiKey, Role

OPEN = {"/livez", "/metrics"}
FOR_WORKERS = {"/internal/snapshot", "/internal/management"}
PREDICTOR = {"role": "predictor"}


class Scene:
    """A control plane, and what is shown to be let in."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.plane: ControlPlane = plane(folder)
        self.app = application(self.plane, **more)
        self.shown = ""

    def key(self, role: Role, *, expires: float | None = None) -> str:
        """A key in the store; nothing is shown yet."""
        made = asyncio.run(self.plane.keys.create(role, ["*"], expires, "", By("ada")))
        return made.words

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx2.Response:
        if self.shown:
            headers["authorization"] = f"Bearer {self.shown}"
        return send(self.app, method, path, body=body, **headers)


# --- keys ----------------------------------------------------------------------------------------


def test_a_key_is_told_once_and_listed_without_what_opens_anything(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    answer = scene.ask("POST", "/api/keys", PREDICTOR | {"expires_in": 60, "note": "a"})
    made = answer.json()
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    assert made["generation"] == scene.plane.publisher.snapshot.generation and made["in_force"]
    assert (answer.headers["etag"], made["key"].split("_")[1]) == ('"1"', made["id"])
    scene.shown = SECRET
    scene.ask("POST", "/api/keys", PREDICTOR | {"expires": "2030-01-01T00:00:00+01:00"})
    scene.plane.wall.now += 60
    answer = scene.ask("GET", "/api/keys")
    one, two = sorted(answer.json(), key=lambda key: key["expires"])
    times = {"created": "2023-11-14T22:13:20Z", "expires": "2023-11-14T22:14:20Z"}
    about = {"state": "expired", "author": "anonymous", "note": "a"}
    assert one == {"id": made["id"], "role": "predictor", "models": ["*"]} | times | about
    assert (two["state"], two["expires"]) == ("active", "2029-12-31T23:00:00Z")
    digest = scene.plane.decisions.keys()[made["id"]].digest
    assert digest not in answer.text and made["key"].split("_", 2)[2] not in answer.text


def test_a_revoked_key_is_listed_and_opens_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    words = scene.key(Role.ADMIN)
    scene.shown = words
    path = f"/api/keys/{words.split('_')[1]}"
    assert_error(scene.ask("DELETE", path, if_match='"9"'), 412, "precondition_failed")
    assert scene.ask("DELETE", path).json()["in_force"] is True
    assert_error(scene.ask("GET", "/api/keys"), 401, "unauthenticated")
    scene.shown = SECRET
    assert [key["state"] for key in scene.ask("GET", "/api/keys").json()] == ["revoked"]
    assert_error(scene.ask("DELETE", "/api/keys/abcd"), 404, "unknown_key")
    scene.shown = words = scene.key(Role.ADMIN)
    asyncio.run(scene.plane.publisher.poll("worker-0", 1, 0))
    answer = scene.ask("DELETE", f"/api/keys/{words.split('_')[1]}")
    assert answer.json()["in_force"] is False, "a worker has not acknowledged it"


def test_a_key_that_cannot_be_is_refused_and_closes_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    bodies: list[Any] = [None, {}, {"role": "owner"}, PREDICTOR | {"note": "x" * 1001}]
    bodies += [PREDICTOR | {"models": ones} for ones in ([], "*", ["a b"], ["a"] * 101)]
    bodies += [PREDICTOR | {"expires_in": seconds} for seconds in (0, "nan", 1e12)]
    times = ("2020-01-01T00:00:00Z", "2030-01-01T00:00:00")
    bodies += [PREDICTOR | {"expires": time} for time in times]
    bodies += [PREDICTOR | {"expires": "2030-01-01T00:00:00Z", "expires_in": 5}]
    bodies += [PREDICTOR | {"key": "sg_abcd_mine"}]
    for body in bodies:
        assert_error(scene.ask("POST", "/api/keys", body), 422, "invalid")
    assert not scene.plane.decisions.guarded


# --- who may ask ---------------------------------------------------------------------------------


def operations(scene: Scene) -> list[tuple[str, str]]:
    """Every method and path that the application answers."""
    found, waiting = [], list(scene.app.routes)
    while waiting:
        route: Any = waiting.pop()
        if hasattr(route, "original_router"):  # one that was included
            waiting += route.original_router.routes
            continue
        assert isinstance(route, APIRoute), f"{route} is none of ours"
        path = route.path.replace("{model}", "m").replace("{label}", "l").replace("{id}", "abcd")
        found += [(method, path) for method in sorted(route.methods)]
    return found


def assert_refused(method: str, answer: httpx2.Response, status: int, code: str) -> None:
    """An error; the answer to HEAD has no body."""
    if method == "HEAD":
        assert (answer.status_code, answer.headers["servegate-error"]) == (status, code)
    else:
        assert_error(answer, status, code)


def test_every_route_wants_an_admin_key_once_there_is_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    predictor, admin = scene.key(Role.PREDICTOR), scene.key(Role.ADMIN)
    asked = [(m, p) for m, p in operations(scene) if p not in OPEN | FOR_WORKERS]
    assert len(asked) >= 13
    for method, path in asked:
        scene.shown = ""
        answer = scene.ask(method, path)
        assert_refused(method, answer, 401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")
        scene.shown = predictor
        assert_refused(method, scene.ask(method, path), 403, "forbidden")
    for scene.shown in (admin, SECRET):
        for path in ("/api/models", "/api/keys", "/api/snapshot", "/openapi.json"):
            assert scene.ask("GET", path).status_code == 200
    scene.shown = admin
    for method, path in operations(scene):
        if path in FOR_WORKERS:
            assert scene.ask(method, path, {"act": "load"}).status_code == 404
    scene.shown = ""
    assert {scene.ask("GET", path).status_code for path in OPEN} == {200}


def test_what_is_neither_key_nor_secret_opens_nothing_and_is_told_nothing(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.key(Role.ADMIN)
    for shown in (SECRET + "x", SECRET[:-1], "\u00e9"):
        headers = {"authorization": f"Bearer {shown}".encode("latin-1")}
        answer = play(scene.app, lambda one, named=headers: one.get("/api/models", headers=named))
        assert_error(answer, 401, "unauthenticated")
    assert_error(scene.ask("PUT", "/api/routes/m", {"nonsense": 1}), 401, "unauthenticated")
    assert_error(scene.ask("GET", "/api/models/nope"), 401, "unauthenticated")


def test_the_operator_may_want_keys_before_there_is_one(tmp_path: Path) -> None:
    scene = Scene(tmp_path, needs_key=lambda guarded: True)
    assert_error(scene.ask("GET", "/api/models"), 401, "unauthenticated")
    scene.shown = SECRET
    assert scene.ask("POST", "/api/keys", PREDICTOR).status_code == 201


def test_who_has_shown_a_key_is_its_id_and_not_who_they_say(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    words = scene.key(Role.ADMIN)
    for scene.shown in (words, SECRET):
        body = {"split": {"1": 1}}
        scene.ask("PUT", "/api/routes/m", body, servegate_author="eve", servegate_reason="r")
    rows = asyncio.run(scene.plane.store.history(kind="route"))
    told = [(row["author"], row["reason"]) for row in rows]
    assert told == [("eve", "r"), (f"key:{words.split('_')[1]}", "r")]


# --- sessions: a cookie that is worth what its key is worth --------------------------------------


SHARED = "the-shared-secret"
KEY, _ = ApiKey.create(Role.ADMIN)
KEYS = {KEY.id: KEY}
NOW = 1_700_000_000.0


def cookie(key: ApiKey | None = KEY) -> str:
    return session_of(key, secret=SHARED, now=NOW)


def test_a_session_stands_for_its_key_until_its_end() -> None:
    assert is_valid(cookie(), KEYS, secret=SHARED, now=NOW + LASTS - 1) == (True, KEY)
    assert is_valid(cookie(), KEYS, secret=SHARED, now=NOW + LASTS)[0] is False
    assert is_valid(cookie(None), {}, secret=SHARED, now=NOW) == (True, None)
    assert is_valid(cookie(), KEYS, secret="another-secret-16", now=NOW)[0] is False


def test_sessions_end_when_their_key_is_revoked_made_anew_or_no_admins_any_more() -> None:
    anew = ApiKey(KEY.id, ApiKey.create(Role.ADMIN)[0].digest, Role.ADMIN)
    less = ApiKey(KEY.id, KEY.digest, Role.PREDICTOR)
    for keys in ({}, {KEY.id: anew}, {KEY.id: less}):
        assert is_valid(cookie(), keys, secret=SHARED, now=NOW)[0] is False


def test_a_session_ends_with_its_key() -> None:
    short = ApiKey("abcd", KEY.digest, Role.ADMIN, expires=NOW + 60)
    made, keys = session_of(short, secret=SHARED, now=NOW), {"abcd": short}
    assert is_valid(made, keys, secret=SHARED, now=NOW + 59) == (True, short)
    assert is_valid(made, keys, secret=SHARED, now=NOW + 61)[0] is False


def test_a_session_that_was_changed_or_never_was_is_none() -> None:
    made = cookie()
    for place in range(len(made)):
        changed = made[:place] + ("0" if made[place] != "0" else "1") + made[place + 1 :]
        assert is_valid(changed, KEYS, secret=SHARED, now=NOW)[0] is False, place
    texts = ["", ".", "..", "local", "local.1.", "local.9999999999.", "local.١.x", "é.1.é"]
    for text in [*texts, f"local.{'9' * 400}.x"]:
        assert is_valid(text, KEYS, secret=SHARED, now=NOW) == (False, None), text
