"""What commands show to be let in: a key that was given, or this machine's secret; never both."""

from pathlib import Path

import pytest

from serve.cli.credentials import api_key, authorization
from serve.core.errors import Invalid
from serve.settings import Settings

KEY = "sg_abcd_0123456789abcdef"
OTHER = "sg_efgh_0123456789abcdef"
SECRET = "0123456789abcdef-secret"
HERE = "http://127.0.0.1:8080"


def state(folder: Path, *, secret: str = SECRET, **more: str) -> Settings:
    """Settings whose state folder holds a secret."""
    (folder / "secret").write_text(secret)
    return Settings(state=str(folder), **more)  # type: ignore[arg-type]


def key_file(folder: Path, text: str) -> Path:
    path = folder / "key"
    path.write_text(text)
    return path


def test_without_a_key_there_is_none() -> None:
    assert api_key(None, {}) == ""


def test_a_key_is_read_from_the_environment() -> None:
    assert api_key(None, {"SERVEGATE_KEY": f" {KEY}\n"}) == KEY
    assert api_key(None, {"SERVEGATE_KEY": ""}) == ""


def test_a_key_file_goes_before_the_environment(tmp_path: Path) -> None:
    assert api_key(key_file(tmp_path, KEY + "\n"), {"SERVEGATE_KEY": OTHER}) == KEY


@pytest.mark.parametrize("text", ["", "sg_abcd", "secret", KEY + " " + OTHER, "\u00e9", "x" * 5000])
def test_a_file_without_a_key_is_refused_and_its_text_is_not_repeated(
    tmp_path: Path, text: str
) -> None:
    with pytest.raises(Invalid) as told:
        api_key(key_file(tmp_path, text))
    assert not text or text not in str(told.value)


def test_a_variable_without_a_key_is_refused() -> None:
    with pytest.raises(Invalid, match="SERVEGATE_KEY"):
        api_key(None, {"SERVEGATE_KEY": "letmein"})


def test_a_key_in_the_place_of_its_file_is_refused_without_repeating_it() -> None:
    with pytest.raises(Invalid, match="command line") as told:
        api_key(Path(KEY))
    assert KEY not in str(told.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="nothing"):
        api_key(tmp_path / "nothing")


def test_a_key_is_shown_everywhere_and_before_the_secret(tmp_path: Path) -> None:
    settings = state(tmp_path)
    path = key_file(tmp_path, KEY)
    for url in (HERE, "https://elsewhere.example:8080"):
        assert authorization(url, path, settings) == f"Bearer {KEY}"


@pytest.mark.parametrize("url", [HERE, "http://localhost:9", "http://[::1]:8080/"])
def test_the_secret_is_shown_on_this_machine(tmp_path: Path, url: str) -> None:
    assert authorization(url, None, state(tmp_path)) == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1:8080", "http://localhost.evil.example", "http://127.0.0.1@evil.example", "x"],
)
def test_the_secret_is_shown_nowhere_else(tmp_path: Path, url: str) -> None:
    assert authorization(url, None, state(tmp_path)) == ""


def test_the_secret_is_shown_to_the_control_plane_of_the_settings(tmp_path: Path) -> None:
    settings = state(tmp_path, control="https://control.example:8080/")
    assert authorization("https://control.example:8080", None, settings) == f"Bearer {SECRET}"


def test_without_a_secret_nothing_is_shown_and_nothing_is_made(tmp_path: Path) -> None:
    assert authorization(HERE, None, Settings(state=str(tmp_path / "state"))) == ""
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_secret_is_not_shown(tmp_path: Path) -> None:
    assert authorization(HERE, None, state(tmp_path, secret="x")) == ""
