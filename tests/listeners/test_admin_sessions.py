"""Sessions: a cookie that is worth what its key is worth, for as long as that is."""

import pytest

from serve.core.access import Key, Role
from serve.listeners.admin.sessions import LASTS, is_valid, session_of

SECRET = "the-shared-secret"
KEY, _ = Key.create(Role.ADMIN)
KEYS = {KEY.id: KEY}
NOW = 1_700_000_000.0


def cookie(key: Key | None = KEY) -> str:
    return session_of(key, secret=SECRET, now=NOW)


def test_a_session_stands_for_its_key_until_its_end() -> None:
    assert is_valid(cookie(), KEYS, secret=SECRET, now=NOW + LASTS - 1) == (True, KEY)
    assert is_valid(cookie(), KEYS, secret=SECRET, now=NOW + LASTS)[0] is False


def test_the_session_of_the_shared_secret_stands_for_no_key() -> None:
    assert is_valid(cookie(None), {}, secret=SECRET, now=NOW) == (True, None)


def test_a_revoked_key_ends_its_sessions() -> None:
    assert is_valid(cookie(), {}, secret=SECRET, now=NOW)[0] is False


def test_a_key_of_the_same_id_made_anew_ends_them_too() -> None:
    other = Key(KEY.id, Key.create(Role.ADMIN)[0].digest, Role.ADMIN)
    assert is_valid(cookie(), {KEY.id: other}, secret=SECRET, now=NOW)[0] is False


def test_a_key_that_is_no_admins_any_more_ends_them() -> None:
    less = Key(KEY.id, KEY.digest, Role.PREDICTOR)
    assert is_valid(cookie(), {KEY.id: less}, secret=SECRET, now=NOW)[0] is False


def test_a_session_ends_with_its_key() -> None:
    short = Key("abcd", KEY.digest, Role.ADMIN, expires=NOW + 60)
    made, keys = session_of(short, secret=SECRET, now=NOW), {"abcd": short}
    assert is_valid(made, keys, secret=SECRET, now=NOW + 59) == (True, short)
    assert is_valid(made, keys, secret=SECRET, now=NOW + 61)[0] is False


@pytest.mark.parametrize("place", range(0, 80, 7))
def test_a_changed_session_is_none(place: int) -> None:
    made = cookie()
    place = min(place, len(made) - 1)
    changed = made[:place] + ("0" if made[place] != "0" else "1") + made[place + 1 :]
    assert is_valid(changed, KEYS, secret=SECRET, now=NOW)[0] is False


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "local",
        "local.1.",
        "local.9999999999.",
        "local.١.x",
        f"local.{'9' * 400}.x",
        "é.1.é",
    ],
)
def test_what_was_never_a_session_is_none(text: str) -> None:
    assert is_valid(text, KEYS, secret=SECRET, now=NOW) == (False, None)


def test_another_secret_makes_other_sessions() -> None:
    assert is_valid(cookie(), KEYS, secret="another-secret-16", now=NOW)[0] is False
