"""Sessions: a cookie that is worth what its key is worth, for as long as that is."""

from serve.admin.api.sessions import LASTS, is_valid, session_of
from serve.core.access import ApiKey, Role

SECRET = "the-shared-secret"
KEY, _ = ApiKey.create(Role.ADMIN)
KEYS = {KEY.id: KEY}
NOW = 1_700_000_000.0


def cookie(key: ApiKey | None = KEY) -> str:
    return session_of(key, secret=SECRET, now=NOW)


def test_a_session_stands_for_its_key_until_its_end() -> None:
    assert is_valid(cookie(), KEYS, secret=SECRET, now=NOW + LASTS - 1) == (True, KEY)
    assert is_valid(cookie(), KEYS, secret=SECRET, now=NOW + LASTS)[0] is False
    assert is_valid(cookie(None), {}, secret=SECRET, now=NOW) == (True, None)
    assert is_valid(cookie(), KEYS, secret="another-secret-16", now=NOW)[0] is False


def test_sessions_end_when_their_key_is_revoked_made_anew_or_no_admins_any_more() -> None:
    anew = ApiKey(KEY.id, ApiKey.create(Role.ADMIN)[0].digest, Role.ADMIN)
    less = ApiKey(KEY.id, KEY.digest, Role.PREDICTOR)
    for keys in ({}, {KEY.id: anew}, {KEY.id: less}):
        assert is_valid(cookie(), keys, secret=SECRET, now=NOW)[0] is False


def test_a_session_ends_with_its_key() -> None:
    short = ApiKey("abcd", KEY.digest, Role.ADMIN, expires=NOW + 60)
    made, keys = session_of(short, secret=SECRET, now=NOW), {"abcd": short}
    assert is_valid(made, keys, secret=SECRET, now=NOW + 59) == (True, short)
    assert is_valid(made, keys, secret=SECRET, now=NOW + 61)[0] is False


def test_a_session_that_was_changed_or_never_was_is_none() -> None:
    made = cookie()
    for place in range(len(made)):
        changed = made[:place] + ("0" if made[place] != "0" else "1") + made[place + 1 :]
        assert is_valid(changed, KEYS, secret=SECRET, now=NOW)[0] is False, place
    texts = ["", ".", "..", "local", "local.1.", "local.9999999999.", "local.١.x", "é.1.é"]
    for text in [*texts, f"local.{'9' * 400}.x"]:
        assert is_valid(text, KEYS, secret=SECRET, now=NOW) == (False, None), text
