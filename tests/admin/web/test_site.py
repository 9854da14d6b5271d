"""The site's frame: logging in, its policy, files and errors, how values look, and small pages."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

from admin.api.admin_scene import SECRET, Client, play
from starlette.datastructures import URL

from serve.admin.api.sessions import COOKIE
from serve.admin.web import page_templates, static_files
from serve.admin.web.page_templates import _from_there

from .pages_scene import Pages, words
from .web_scene import HTMX, PERSON, got, site_over


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


# --- the frame -----------------------------------------------------------------------------------


HOSTILE = '"><script>alert(1)</script>'


def test_an_error_is_a_page_for_people_and_a_part_for_htmx(tmp_path: Path) -> None:
    app = site_over(tmp_path)
    whole, part = got(app, "/nowhere"), got(app, "/nowhere", headers=HTMX)
    assert whole.status_code == part.status_code == 404
    assert "<h1>" in whole.text and "<html" not in part.text and 'class="verdict bad"' in part.text
    policy = whole.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    hostile = got(app, "/<script>alert(1)</script>")
    assert hostile.status_code == 404 and "<script>alert" not in hostile.text


def test_a_file_is_kept_for_ever_under_the_name_of_its_content(tmp_path: Path) -> None:
    app = site_over(tmp_path)
    now, other = got(app, static_files.url("style.css")), got(app, "/static/0/style.css")
    assert "immutable" in now.headers["cache-control"]
    assert other.headers["cache-control"] == "no-cache" and other.text == now.text
    assert now.headers["x-content-type-options"] == "nosniff"
    for name in ("../site.py", "..%2fsite.py", "vendor", "", "x.css"):
        assert got(app, f"/static/0/{name}").status_code == 404, name


def test_templates_write_no_style_script_or_handler_inline() -> None:
    for path in sorted(Path(page_templates.__file__).parent.glob("templates/**/*.html")):
        text = path.read_text()
        for word in (" style=", "onclick=", "onload=", "onerror=", "hx-on", "|safe", "javascript:"):
            assert word not in text, f"{path.name}: {word}"
        assert "<script>" not in text and "<style" not in text, path.name


def test_numbers_have_units() -> None:
    sizes = {None: "—", 0: "0 B", 999: "999 B", 1_250_000: "1.25 MB", 3e12: "3 TB"}
    assert {value: page_templates.bytes_text(value) for value in sizes} == sizes
    times = {None: "—", 0.0: "0 µs", 0.00042: "420 µs", 0.00099999: "1 ms", 75.0: "75 s"}
    assert {value: page_templates.seconds_text(value) for value in times} == times
    ago = {2: "just now", 30: "30 s ago", 150: "2 min ago", 7300: "2 h ago", 200000: "2 d ago"}
    assert {passed: page_templates.ago_text(1000.0, 1000.0 + passed) for passed in ago} == ago


def test_commands_on_pages_have_the_addresses_that_are_not_the_defaults(tmp_path: Path) -> None:
    ports = tuple(f"http://127.0.0.1:{port}" for port in (25000, 25001, 25002))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    elsewhere, usual = Pages(tmp_path / "a", data_urls=ports), Pages(tmp_path / "b")
    load = "servegate load scenario smoke --model MODEL --share"
    flags = "--url http://127.0.0.1:25000 --grpc-url http://127.0.0.1:25001 --metrics-url http://127.0.0.1:25002"
    said = words(elsewhere.get("/loadtests", host="localhost:25080"))
    assert f"{load} {flags} --admin-url http://localhost:25080" in said
    push = "servegate model push model_repo/digits digits --live --wait"
    said = words(elsewhere.get("/", host="localhost:25080"))
    assert f"{push} --admin-url http://localhost:25080" in said
    assert push in words(usual.get("/"))
    assert "--admin-url" not in words(usual.get("/")) + words(usual.get("/loadtests"))


def test_ports_of_the_gateways_machine_are_shown_as_the_reader_reaches_them() -> None:
    here = "http://127.0.0.1:8000"
    for url, page, seen in (
        (here, "http://localhost:8080/", here),
        (here, "https://gw.example/", "http://gw.example:8000"),
        ("http://gateway:8000", "https://gw.example/", "http://gateway:8000"),
        (here, "http://[fe80::1]:8080/", "http://[fe80::1]:8000"),
    ):
        assert _from_there(url, URL(page)) == seen, page


def test_the_upload_page_names_the_command_and_proposes_a_known_model(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    plain = pages.get("/upload").text.partition("<noscript>")[2].partition("</noscript>")[0]
    assert "servegate model push" in plain
    pages.publish(b"one")
    answer = pages.get("/upload?model=m")
    assert 'value="m"' in answer.text and "<option>m</option>" in answer.text
    assert "Drop a model folder here" in words(answer)
    text = pages.get('/upload?model="><script>alert(1)</script>').text
    assert "<script>alert" not in text


def test_the_live_page_has_its_parts_and_a_pick_of_all_models(tmp_path: Path) -> None:
    app = site_over(tmp_path)
    answer = got(app, "/live")
    assert answer.status_code == 200
    assert '<option value="m">m</option>' in answer.text
    for part in ('id="replicas"', 'aria-live="polite"', 'href="/api/live"', "servegate load run"):
        assert part in answer.text
    text = got(app, "/live?model=m&minutes=2").text
    assert '<option value="m" selected>' in text and '<option value="2" selected>' in text
    text = got(app, f"/live?model={quote(HOSTILE)}").text
    assert "<script>alert" not in text and "alert(1)" in text
    for query in ("minutes=0", "minutes=11", "minutes=x", "model=" + "m" * 301):
        assert got(app, f"/live?{query}").status_code == 422
