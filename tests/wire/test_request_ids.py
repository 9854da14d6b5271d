"""Request ids: which are kept, and those that are made up."""

from serve.wire.request_ids import fresh_ids, usable


def test_ids_that_are_made_up_are_all_different_and_usable() -> None:
    made = [next(ids) for ids in (fresh_ids(), fresh_ids()) for _ in range(1000)]
    assert len(set(made)) == 2000
    assert all(usable(one) == one for one in made)


def test_an_id_never_breaks_a_line() -> None:
    for value in (b"a\r\nx: 1", b"a\nb", b"a\r", b"a\x00", b"a\x7f"):
        assert usable(value) == b""
