"""Calls, replies and choices: what a choice writes down for everybody who asks."""

import dataclasses

import pytest
from builders import target

from serve.core.calls import Choice
from serve.core.snapshot import Target


def test_a_choice_says_which_version_answers_and_why() -> None:
    choice = Choice(target(2), "split", pinned=True, generation=7)
    assert choice.reason == "2; by=split; generation=7"
    assert choice.labels == ("m", "2", "split")


@pytest.mark.parametrize(
    ("physical_name", "physical_version", "renamed"),
    [("m", 2, False), ("m--0123abcd", 2, True), ("m", 1, True)],
)
def test_a_choice_knows_whether_triton_calls_the_version_by_other_names(
    physical_name: str, physical_version: int, renamed: bool
) -> None:
    there = Target("m", 2, physical_name, physical_version, "onnxruntime", ("a",))
    choice = Choice(there, "split", pinned=True)
    assert choice.is_renamed is renamed
    assert choice.labels == ("m", "2", "split")  # callers hear the names that they know


def test_a_choice_cannot_be_edited() -> None:
    choice = Choice(target(2), "split", pinned=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.by = "number"  # type: ignore[misc]
