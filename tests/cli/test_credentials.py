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


def test_a_key_comes_from_its_file_or_else_from_the_environment(tmp_path: Path) -> None:
    assert api_key(None, {}) == api_key(None, {"SERVEGATE_KEY": ""}) == ""
    assert api_key(None, {"SERVEGATE_KEY": f" {KEY}\n"}) == KEY
    assert api_key(key_file(tmp_path, KEY + "\n"), {"SERVEGATE_KEY": OTHER}) == KEY


def test_what_is_no_key_is_refused_and_never_repeated(tmp_path: Path) -> None:
    for text in ("", "sg_abcd", "secret", KEY + " " + OTHER, "\u00e9", "x" * 5000):
        with pytest.raises(Invalid) as told:
            api_key(key_file(tmp_path, text))
        assert not text or text not in str(told.value)
    with pytest.raises(Invalid, match="SERVEGATE_KEY"):
        api_key(None, {"SERVEGATE_KEY": "letmein"})
    with pytest.raises(Invalid, match="command line") as told:
        api_key(Path(KEY))
    assert KEY not in str(told.value)
    with pytest.raises(Invalid, match="nothing"):
        api_key(tmp_path / "nothing")


def test_a_key_is_shown_everywhere_and_before_the_secret(tmp_path: Path) -> None:
    settings = state(tmp_path)
    path = key_file(tmp_path, KEY)
    for url in (HERE, "https://elsewhere.example:8080"):
        assert authorization(url, path, settings) == f"Bearer {KEY}"


def test_the_secret_is_shown_on_this_machine_and_to_the_control_plane_of_the_settings(
    tmp_path: Path,
) -> None:
    for url in (HERE, "http://localhost:9", "http://[::1]:8080/"):
        assert authorization(url, None, state(tmp_path)) == f"Bearer {SECRET}"
    settings = state(tmp_path, control="https://control.example:8080/")
    assert authorization("https://control.example:8080", None, settings) == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    "url",
    ["http://10.0.0.1:8080", "http://localhost.evil.example", "http://127.0.0.1@evil.example", "x"],
)
def test_the_secret_is_shown_nowhere_else(tmp_path: Path, url: str) -> None:
    assert authorization(url, None, state(tmp_path)) == ""


def test_without_a_whole_secret_nothing_is_shown_and_nothing_is_made(tmp_path: Path) -> None:
    assert authorization(HERE, None, Settings(state=str(tmp_path / "state"))) == ""
    assert list(tmp_path.iterdir()) == []
    assert authorization(HERE, None, state(tmp_path, secret="x")) == ""
