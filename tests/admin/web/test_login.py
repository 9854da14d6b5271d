"""Logging in: an admin key or the shared secret opens the pages, and nothing else does."""

from pathlib import Path
from typing import Any

from admin.api.admin_scene import SECRET, Client, play

from serve.admin.api.sessions import COOKIE

from .web_scene import PERSON, got, site_over


def closed(folder: Path) -> Any:
    return site_over(folder, needs_key=lambda guarded: True)


def log_in(app: Any, key: str, next: str = "/login") -> Any:
    return got(app, "/login", "POST", data={"key": key, "next": next})


def test_a_page_sends_those_who_show_nothing_to_the_form_and_back(tmp_path: Path) -> None:
    app = closed(tmp_path)
    answer = got(app, "/models/m?a=1&b=2")
    there = "/login?next=%2Fmodels%2Fm%3Fa%3D1%26b%3D2"
    assert (answer.status_code, answer.headers["location"]) == (303, there)
    answer = got(app, "/api/models")
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
    from_elsewhere = got(app, "/login", headers={"sec-fetch-site": "cross-site"})
    assert from_elsewhere.status_code == 200, "other sites may lead here"


def test_where_no_key_is_needed_the_form_leads_on(tmp_path: Path) -> None:
    assert got(site_over(tmp_path), "/login?next=/live").headers["location"] == "/live"


def test_the_secret_opens_the_api_for_the_session_only(tmp_path: Path) -> None:
    app = closed(tmp_path)

    async def scenario(client: Client) -> list[int]:
        told = [(await client.get("/api/models")).status_code]
        done = await client.post("/login", data={"key": SECRET}, headers=PERSON)
        told += [done.status_code, (await client.get("/api/models")).status_code]
        await client.post("/logout", headers={"origin": "http://localhost:8080"})
        return [*told, (await client.get("/api/models")).status_code]

    assert play(app, scenario) == [401, 303, 200, 401]


def test_the_cookie_is_for_this_site_alone_and_nobody_is_sent_to_another(tmp_path: Path) -> None:
    app = closed(tmp_path)
    evil = ("//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a\nb", "")
    for wanted in evil:
        answer = log_in(app, SECRET, wanted)
        assert answer.headers["location"] == "/", wanted
    said = answer.headers["set-cookie"].lower()
    assert said.startswith(COOKIE) and "httponly" in said and "samesite=strict" in said


def test_a_wrong_key_is_told_so_and_sets_nothing(tmp_path: Path) -> None:
    app = closed(tmp_path)
    for key in ("", "sg_abcd_" + "x" * 32, "Bearer x", "é" * 40, "\x00"):
        answer = log_in(app, key)
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert 'role="alert"' in answer.text


def test_pages_of_other_sites_can_ask_for_nothing_that_changes(tmp_path: Path) -> None:
    """Even where no key is needed: a local browser reaches a local port."""
    app, own = closed(tmp_path), {"origin": "http://localhost:8080"}
    for headers, status in (
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        (own | {"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        (own, 303),
        ({"sec-fetch-site": "same-origin"}, 303),
        ({}, 303),
        ({"cookie": f"{COOKIE}=x"}, 403),
    ):
        answer = got(app, "/login", "POST", data={"key": SECRET}, headers=headers)
        assert answer.status_code == status, headers
