"""The Live page as it is sent: its picks, and names as texts."""

from pathlib import Path
from urllib.parse import quote

import pytest

from .web_scene import got, site_over

HOSTILE = '"><script>alert(1)</script>'


def test_the_page_has_a_pick_of_all_models_and_its_parts(tmp_path: Path) -> None:
    answer = got(site_over(tmp_path), "/live")
    assert answer.status_code == 200
    assert '<option value="m">m</option>' in answer.text
    for part in ('id="replicas"', 'aria-live="polite"', 'href="/api/live"', "servegate load run"):
        assert part in answer.text


def test_a_link_says_what_is_picked(tmp_path: Path) -> None:
    text = got(site_over(tmp_path), "/live?model=m&minutes=2").text
    assert '<option value="m" selected>' in text and '<option value="2" selected>' in text


def test_a_model_that_is_not_known_is_a_text_like_any_other(tmp_path: Path) -> None:
    text = got(site_over(tmp_path), f"/live?model={quote(HOSTILE)}").text
    assert "<script>alert" not in text and "alert(1)" in text


@pytest.mark.parametrize("query", ["minutes=0", "minutes=11", "minutes=x", "model=" + "m" * 301])
def test_picks_that_make_no_sense_are_refused(tmp_path: Path, query: str) -> None:
    assert got(site_over(tmp_path), f"/live?{query}").status_code == 422


def test_without_a_key_the_page_is_the_login(tmp_path: Path) -> None:
    answer = got(site_over(tmp_path, needs_key=lambda guarded: True), "/live?model=m")
    assert (answer.status_code, answer.headers["location"][:12]) == (303, "/login?next=")
