"""The site's frame: its policy, its files, its errors, and how values look on it."""

from pathlib import Path

import pytest
from starlette.datastructures import URL

from serve.listeners.web import rendering, static_files
from serve.listeners.web.rendering import _from_there

from .pages_scene import Pages, words
from .web_scene import HTMX, got, site_over


def test_every_page_allows_only_its_own_files(tmp_path: Path) -> None:
    policy = got(site_over(tmp_path), "/nowhere").headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy


def test_an_error_is_a_page_for_people_and_a_part_for_htmx(tmp_path: Path) -> None:
    app = site_over(tmp_path)
    whole, part = got(app, "/nowhere"), got(app, "/nowhere", headers=HTMX)
    assert whole.status_code == part.status_code == 404
    assert "<h1>" in whole.text and "<html" not in part.text and 'class="verdict bad"' in part.text


def test_a_hostile_path_is_a_text_on_the_page_that_refuses_it(tmp_path: Path) -> None:
    answer = got(site_over(tmp_path), "/<script>alert(1)</script>")
    assert answer.status_code == 404 and "<script>alert" not in answer.text


def test_a_file_is_kept_for_ever_under_the_name_of_its_content(tmp_path: Path) -> None:
    app = site_over(tmp_path)
    now, other = got(app, static_files.url("style.css")), got(app, "/static/0/style.css")
    assert "immutable" in now.headers["cache-control"]
    assert other.headers["cache-control"] == "no-cache" and other.text == now.text
    assert now.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["../site.py", "..%2fsite.py", "vendor", "", "x.css"])
def test_only_the_sites_own_files_are_given(tmp_path: Path, name: str) -> None:
    assert got(site_over(tmp_path), f"/static/0/{name}").status_code == 404


def test_templates_write_no_style_script_or_handler_inline() -> None:
    for path in sorted(Path(rendering.__file__).parent.glob("templates/**/*.html")):
        text = path.read_text()
        for word in (" style=", "onclick=", "onload=", "onerror=", "hx-on", "|safe", "javascript:"):
            assert word not in text, f"{path.name}: {word}"
        assert "<script>" not in text and "<style" not in text, path.name


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0, "0 B"), (999, "999 B"), (1_250_000, "1.25 MB"), (3e12, "3 TB")],
)
def test_sizes_have_units(value: float | None, text: str) -> None:
    assert rendering.bytes_text(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "—"), (0.0, "0 µs"), (0.00042, "420 µs"), (0.00099999, "1 ms"), (75.0, "75 s")],
)
def test_times_have_units(value: float | None, text: str) -> None:
    assert rendering.seconds_text(value) == text


@pytest.mark.parametrize(
    ("passed", "text"),
    [(2, "just now"), (30, "30 s ago"), (150, "2 min ago"), (7300, "2 h ago"), (200000, "2 d ago")],
)
def test_moments_are_told_from_now(passed: float, text: str) -> None:
    assert rendering.ago_text(1000.0, 1000.0 + passed) == text


def test_commands_on_pages_have_the_addresses_that_are_not_the_defaults(tmp_path: Path) -> None:
    ports = tuple(f"http://127.0.0.1:{port}" for port in (25000, 25001, 25002))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    elsewhere, usual = Pages(tmp_path / "a", data_urls=ports), Pages(tmp_path / "b")
    load = "servegate load scenario smoke --model MODEL --share"
    flags = "--url http://127.0.0.1:25000 --metrics-url http://127.0.0.1:25002"
    said = words(elsewhere.get("/loadtests", host="localhost:25080"))
    assert f"{load} {flags} --admin-url http://localhost:25080" in said
    push = "servegate model push model_repo/digits digits --live --wait"
    said = words(elsewhere.get("/", host="localhost:25080"))
    assert f"{push} --admin-url http://localhost:25080" in said
    assert push in words(usual.get("/"))
    assert "--admin-url" not in words(usual.get("/")) + words(usual.get("/loadtests"))


@pytest.mark.parametrize(
    ("url", "page", "seen"),
    [
        ("http://127.0.0.1:8000", "http://localhost:8080/", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000", "https://gw.example/", "http://gw.example:8000"),
        ("http://gateway:8000", "https://gw.example/", "http://gateway:8000"),
        ("http://127.0.0.1:8000", "http://[fe80::1]:8080/", "http://[fe80::1]:8000"),
    ],
)
def test_ports_of_the_gateways_machine_are_shown_as_the_reader_reaches_them(
    url: str, page: str, seen: str
) -> None:
    assert _from_there(url, URL(page)) == seen
