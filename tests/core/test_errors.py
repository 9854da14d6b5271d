"""The error tree: three sentences and a stable code."""

import dataclasses
import inspect
from collections import Counter

from serve.core import errors
from serve.core.errors import (
    BodyTooLarge,
    HeadTooLarge,
    InflatedTooLarge,
    NoReplica,
    NoRoom,
    Overloaded,
    ServegateError,
    TooSlow,
    UnknownLabel,
    UnknownModel,
)
from serve.settings import Settings

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ServegateError)
]


def test_an_error_is_told_on_one_line_without_what_is_not_known() -> None:
    for told, text in (
        (ServegateError("it broke"), "it broke"),
        (ServegateError("it broke", try_this="that"), "it broke. Try: that"),
        (
            ServegateError("it broke", why="a reason", try_this="that"),
            "it broke: a reason. Try: that",
        ),
        # clients look for Triton's words
        (UnknownModel("x"), "Request for unknown model: 'x' is not found"),
        (NoReplica("m", "2", "why"), "no replica is ready for model 'm' version 2: why"),
        (NoReplica("m", ""), "no replica is ready for model 'm'"),
        (NoReplica("", ""), "no replica is ready"),
        (
            TooSlow("3 bytes of the body came", 30.04),
            "the request timed out after 30 s: 3 bytes of the body came",
        ),
    ):
        assert str(told) == text


def test_every_kind_of_error_has_a_code_of_its_own() -> None:
    counts = Counter(kind.code for kind in CLASSES)
    assert [code for code, count in counts.items() if count > 1] == []


def test_an_unknown_label_names_those_that_exist() -> None:
    assert "the labels of this model are: a, b" in str(UnknownLabel("m", "c", {"b": 1, "a": 2}))
    assert "the labels of this model are: none" in str(UnknownLabel("m", "c", {}))


def test_a_limit_that_is_exceeded_names_its_number_and_the_setting_to_raise() -> None:
    for error in (BodyTooLarge(5000), HeadTooLarge(5000), InflatedTooLarge(5000), NoRoom(5000)):
        assert "5000 bytes" in error.what, error
        assert setting_of(error) in {row.name for row in dataclasses.fields(Settings)}, error
    assert setting_of(Overloaded("m", 5)) == "max_in_flight"


def setting_of(error: ServegateError) -> str:
    """The setting that what to try ends with."""
    return error.try_this.rpartition("the setting ")[2]


def test_a_body_that_grows_too_large_is_told_from_one_that_comes_too_large() -> None:
    assert "after decompression" in str(InflatedTooLarge(9))
    assert "decompression" not in str(BodyTooLarge(9))
    assert isinstance(InflatedTooLarge(9), BodyTooLarge)


def test_what_passes_by_itself_says_in_how_many_seconds_to_try_again() -> None:
    assert (Overloaded("m", 5).retry_after, NoRoom(5).retry_after) == (1, 1)
