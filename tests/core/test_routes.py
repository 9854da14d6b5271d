"""Splits: how they are written, and which version a draw lands on."""

import math
from collections import Counter

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.routes import MAX_WEIGHT, Split, draw_of


def test_a_split_is_written_as_version_equals_weight_and_sorted_by_version() -> None:
    split = Split.parse(["10=5", "2=90", "1=5"])
    assert split.shares == ((1, 5), (2, 90), (10, 5))
    assert str(split) == "1=5 2=90 10=5"


def test_a_split_reads_what_it_writes() -> None:
    split = Split.of({3: 1, 1: 0, 2: MAX_WEIGHT})
    assert Split.parse(str(split).split()) == split


def test_a_version_without_weight_is_kept_but_receives_nothing() -> None:
    split = Split.parse(["1=0", "2=1"])
    assert split.shares == ((1, 0), (2, 1))
    assert split.versions == (2,)


def test_the_total_is_the_sum_of_all_weights() -> None:
    assert Split.parse(["1=3", "2=0", "9=4"]).total == 7


def test_splits_with_the_same_shares_are_equal() -> None:
    assert Split.parse(["2=1", "1=3"]) == Split.of({1: 3, 2: 1})
    assert hash(Split.parse(["1=3"])) == hash(Split.of({1: 3}))
    assert Split.parse(["1=3"]) != Split.parse(["1=6"])


def test_anything_else_is_no_split() -> None:
    for terms in (
        [],
        [""],
        ["1"],
        ["=1"],
        ["1="],
        ["1=0"],
        ["1=0", "2=0"],
        ["0=1"],
        ["-1=1"],
        ["1=-1"],
        ["1=1.5"],
        ["1.0=1"],
        ["1=1=1"],
        ["stable=1"],
        ["1=50%"],
        [" 1=1"],
        ["٣=1"],
        ["1=٣"],
        ["1=1", "1=2"],
        ["1=1", "01=2"],
        [f"1={MAX_WEIGHT + 1}"],
    ):
        refusal(Invalid, Split.parse, terms)


def test_weights_out_of_range_are_refused() -> None:
    for weights in ({}, {1: 0}, {0: 1}, {-2: 1}, {1: -1}, {1: MAX_WEIGHT + 1}):
        refusal(Invalid, Split.of, weights)


def test_the_largest_weight_is_allowed() -> None:
    assert Split.of({1: MAX_WEIGHT}).total == MAX_WEIGHT


def test_a_draw_takes_the_version_in_whose_interval_it_falls() -> None:
    for draw, version in (
        (0.0, 1),
        (math.nextafter(0.5, 0), 1),
        (0.5, 2),
        (math.nextafter(0.75, 0), 2),
        (0.75, 4),
        (math.nextafter(1.0, 0), 4),
    ):
        assert Split.parse(["1=2", "2=1", "3=0", "4=1"]).choose(draw) == version, draw


def test_evenly_spaced_draws_give_exactly_the_weights() -> None:
    split = Split.parse(["1=900", "2=90", "3=0", "7=10"])
    counts = Counter(split.choose((n + 0.5) / split.total) for n in range(split.total))
    assert counts == {1: 900, 2: 90, 7: 10}


def test_a_version_without_weight_is_never_chosen_even_at_the_ends() -> None:
    split = Split.parse(["1=0", "2=3", "3=0"])
    assert {split.choose(draw) for draw in (0.0, 0.5, math.nextafter(1.0, 0), 1.0)} == {2}


def test_a_draw_depends_on_the_words_alone() -> None:
    assert draw_of("digits", "n77") == draw_of("digits", "n77")
    assert draw_of("digits", "n77") == 0.5744910313716329  # the same in every process and release
    assert draw_of("digits", "n77") != draw_of("digits", "s77")


def test_half_a_character_is_a_word_too() -> None:
    assert draw_of("m", "s\ud800") != draw_of("m", "s\ud801")


def test_words_do_not_run_together() -> None:
    assert draw_of("ab", "c") != draw_of("a", "bc")


def test_draws_of_many_words_are_spread_evenly() -> None:
    counts = Counter(int(draw_of("m", str(n)) * 10) for n in range(10_000))
    assert set(counts) == set(range(10))
    assert all(900 < count < 1100 for count in counts.values())
