"""The upload page: what it offers, with and without scripts."""

from pathlib import Path

from .pages_scene import Pages, words


def test_without_scripts_the_command_line_is_named(tmp_path: Path) -> None:
    text = Pages(tmp_path).get("/upload").text
    plain = text.partition("<noscript>")[2].partition("</noscript>")[0]
    assert "servegate model push" in plain


def test_the_name_of_a_known_model_is_proposed(tmp_path: Path) -> None:
    pages = Pages(tmp_path)
    pages.publish(b"one")
    answer = pages.get("/upload?model=m")
    assert 'value="m"' in answer.text and "<option>m</option>" in answer.text
    assert "Drop a model folder here" in words(answer)


def test_a_hostile_name_is_only_text(tmp_path: Path) -> None:
    text = Pages(tmp_path).get('/upload?model="><script>alert(1)</script>').text
    assert "<script>alert" not in text
