"""`servegate key` against a gateway that stands still, and what commands show to be let in."""

import json
from pathlib import Path

import pytest
from cli.commands import Done, servegate

from serve.app.paths import LOCK_FILE
from serve.cli.credentials import api_key, authorization
from serve.cli.keys import seconds_of
from serve.core.errors import Invalid
from serve.processes import hold_lock
from serve.settings import Settings

NOWHERE = "9"  # the discard port, where nobody listens


def run(folder: Path, *arguments: str) -> Done:
    """One command in a folder of its own."""
    return servegate("key", *arguments, folder=folder, SERVEGATE_ADMIN_PORT=NOWHERE)


def test_lengths_of_time_are_read() -> None:
    lengths = {"30d": 2_592_000, "12h": 43_200, "90m": 5400, "1s": 1, "2w": 1_209_600}
    assert {text: seconds_of(text) for text in lengths} == lengths
    for text in ("", "30", "d", "0d", "-1d", "1.5d", "30 d", "1y", "30d12h"):
        with pytest.raises(Invalid):
            seconds_of(text)


def test_a_key_is_made_listed_and_revoked_while_the_gateway_stands_still(tmp_path: Path) -> None:
    made = run(tmp_path, "create", "--role", "predictor", "--models", "a*,b", "--expires", "30d")
    assert made.returncode == 0, made.stderr
    [words] = made.stdout.splitlines()
    identity = words.split("_")[1]
    assert words.startswith("sg_") and words not in made.stderr
    assert "it takes effect when the gateway starts" in made.stderr
    listed = run(tmp_path, "ls").stdout.splitlines()
    assert listed[0].split("\t")[:4] == ["key", "role", "models", "state"]
    assert listed[1].split("\t")[:4] == [identity, "predictor", "a* b", "active"]
    revoked = run(tmp_path, "revoke", identity)
    assert (revoked.returncode, revoked.stdout) == (0, "")
    [shown] = json.loads(run(tmp_path, "ls", "--json").stdout)
    assert (shown["id"], shown["state"]) == (identity, "revoked")
    made = json.loads(run(tmp_path, "create", "--role", "admin", "--json").stdout)
    assert made["key"].startswith(f"sg_{made['id']}_")


def test_exit_codes_say_what_went_wrong(tmp_path: Path) -> None:
    for words, code in (
        ("create --role owner", 2),
        ("create --role predictor --expires soon", 2),
        ("create --role admin --models a*", 2),
        ("revoke abcd", 3),
        ("revoke sg_abcd_0123456789abcdef", 2),
        ("ls --key-file sg_abcd_0123456789abcdef", 2),
        ("ls --key sg_abcd_0123456789abcdef", 2),
        ("ls --admin-url http://127.0.0.1:9", 6),
    ):
        done = run(tmp_path, *words.split())
        assert done.returncode == code, words
        assert "Traceback" not in done.stderr and "0123456789abcdef" not in done.stderr


def test_the_store_of_a_gateway_that_runs_elsewhere_is_left_alone(tmp_path: Path) -> None:
    with hold_lock(tmp_path / ".servegate" / LOCK_FILE):
        done = run(tmp_path, "create", "--role", "predictor")
    assert done.returncode == 6
    assert "does not respond" in done.stderr and "--admin-url" in done.stderr
    assert done.stdout == ""


# --- a key that was given, or this machine's secret; never both ----------------------------------


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


def test_the_secret_is_shown_here_and_to_the_control_plane_of_the_settings(tmp_path: Path) -> None:
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
