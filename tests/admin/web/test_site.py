"""The site's frame: its policy, files and errors, how values look on it, and its small pages."""

from pathlib import Path
from urllib.parse import quote

from starlette.datastructures import URL

from serve.admin.web import page_templates, static_files
from serve.admin.web.page_templates import _from_there

from .pages_scene import Pages, words
from .web_scene import HTMX, got, site_over

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
