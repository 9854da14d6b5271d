"""Calls, replies and choices: what a choice writes down for everybody who asks."""

import dataclasses

import pytest
from builders import target

from serve.core.calls import Choice
from serve.core.snapshot import VersionTarget


def test_a_choice_says_which_version_answers_and_why() -> None:
    choice = Choice(target(2), "split", pinned=True, generation=7)
    assert choice.reason == "2; by=split; generation=7"
    assert choice.labels == ("m", "2", "split")


def test_a_choice_knows_whether_triton_calls_the_version_by_other_names() -> None:
    for physical_name, physical_version, renamed in (
        ("m", 2, False),
        ("m--0123abcd", 2, True),
        ("m", 1, True),
    ):
        there = VersionTarget("m", 2, physical_name, physical_version, "onnxruntime", ("a",))
        choice = Choice(there, "split", pinned=True)
        assert choice.is_renamed is renamed, (physical_name, physical_version)
        assert choice.labels == ("m", "2", "split")  # callers hear the names that they know


def test_a_choice_cannot_be_edited() -> None:
    choice = Choice(target(2), "split", pinned=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.by = "number"  # type: ignore[misc]
