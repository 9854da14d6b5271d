"""The error tree: three sentences and a stable code."""

import inspect
from collections import Counter

from serve.core import errors
from serve.core.errors import NoReplica, ServegateError, UnknownLabel, UnknownModel

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ServegateError)
]


def test_an_error_is_told_on_one_line() -> None:
    error = ServegateError("it broke", why="a reason", try_this="that")
    assert str(error) == "it broke: a reason. Try: that"


def test_what_is_not_known_is_left_out() -> None:
    assert str(ServegateError("it broke")) == "it broke"
    assert str(ServegateError("it broke", try_this="that")) == "it broke. Try: that"


def test_every_kind_of_error_has_a_code_of_its_own() -> None:
    counts = Counter(kind.code for kind in CLASSES)
    assert [code for code, count in counts.items() if count > 1] == []


def test_an_unknown_model_begins_with_tritons_words_because_clients_look_for_them() -> None:
    assert str(UnknownModel("x")) == "Request for unknown model: 'x' is not found"


def test_an_unknown_label_names_those_that_exist() -> None:
    assert "labels of this model: a, b" in str(UnknownLabel("m", "c", {"b": 1, "a": 2}))
    assert "labels of this model: none" in str(UnknownLabel("m", "c", {}))


def test_no_replica_names_the_version_where_there_is_one() -> None:
    assert str(NoReplica("m", "2", "why")) == "no replica is ready for model 'm' version 2: why"
    assert str(NoReplica("m", "")) == "no replica is ready for model 'm'"
