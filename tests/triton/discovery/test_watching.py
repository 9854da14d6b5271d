"""Watching: slices after a list and events, lines from pieces, and the pauses between attempts."""

import pytest
from endpoint_slices import endpoint_slice, pod

from serve.triton.discovery.kubernetes import LineBuffer, Slices, pause


def names(slices: Slices) -> list[str]:
    return [one.replica.name for one in slices.listing.endpoints]


def begun(*pods: str) -> Slices:
    slices = Slices()
    found = [endpoint_slice(pod(name), name=f"s-{name}", version=3) for name in pods]
    slices.begin(found, "10")
    return slices


def test_a_list_is_all_that_there_is_and_says_where_to_watch_from() -> None:
    slices = begun("a", "b")
    assert (names(slices), slices.version) == (["a", "b"], "10")
    slices.begin([endpoint_slice(pod("c"))], "20")
    assert (names(slices), slices.version) == (["c"], "20")


def test_an_event_changes_one_slice_and_is_where_to_go_on() -> None:
    slices = begun("a", "b")
    assert slices.apply("ADDED", endpoint_slice(pod("c"), name="s-c", version=11))
    assert slices.apply("MODIFIED", endpoint_slice(pod("d"), name="s-b", version=12))
    assert names(slices) == ["a", "c", "d"]
    assert slices.apply("DELETED", endpoint_slice(pod("a"), name="s-a", version=13))
    assert (names(slices), slices.version) == (["c", "d"], "13")


def test_a_bookmark_only_says_where_to_go_on() -> None:
    slices = begun("a")
    assert not slices.apply("BOOKMARK", {"metadata": {"resourceVersion": "77"}})
    assert (names(slices), slices.version) == (["a"], "77")


def test_what_is_known_stays_until_there_is_a_new_list() -> None:
    slices = begun("a")
    slices.forget()
    assert (names(slices), slices.version) == (["a"], "")


def test_of_two_slices_with_one_pod_the_one_that_changed_last_is_right() -> None:
    slices = Slices()
    newer = endpoint_slice(pod("x", ready=False), name="s-1", version=12)
    older = endpoint_slice(pod("x", ready=True), name="s-2", version=9)
    slices.begin([newer, older], "12")
    assert [one.is_ready for one in slices.listing.endpoints] == [False]
    slices.apply("MODIFIED", older | {"metadata": older["metadata"] | {"resourceVersion": "13"}})
    assert [one.is_ready for one in slices.listing.endpoints] == [True]


def test_an_event_that_is_none_is_no_event() -> None:
    with pytest.raises(KeyError):
        begun("a").apply("ADDED", {})


def test_lines_are_the_same_in_whatever_pieces_they_come() -> None:
    for size in (1, 2, 3, 5, 100):
        text = b'{"a":1}\n\n{"b":2}\r\n{"c":3}\n{"half'
        lines = LineBuffer(100)
        found = [
            line for at in range(0, len(text), size) for line in lines.feed(text[at : at + size])
        ]
        assert found == [b'{"a":1}', b'{"b":2}\r', b'{"c":3}'], size


def test_a_line_that_is_too_long_is_refused_before_it_ends() -> None:
    for pieces in ([b"x" * 11], [b"x" * 6, b"x" * 5], [b"x" * 11 + b"\n"]):
        lines = LineBuffer(10)
        with pytest.raises(ValueError, match="more than 10 bytes"):
            for piece in pieces:
                lines.feed(piece)


def test_a_line_of_the_longest_length_is_taken() -> None:
    assert LineBuffer(10).feed(b"x" * 10 + b"\n") == [b"x" * 10]


def test_pauses_double_up_to_ten_seconds_and_have_chance_in_them() -> None:
    assert [pause(tries, 1.0) for tries in (0, 1, 2, 5, 6, 1000)] == [0.25, 0.5, 1, 8, 10, 10]
    assert pause(3, 0.0) == pause(3, 1.0) / 2
