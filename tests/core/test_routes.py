"""Routes: how they are written, which version a draw lands on, and what a choice writes down."""

import math
from collections import Counter

from builders import target
from refusals import refusal

from serve.core.calls import Choice
from serve.core.errors import Invalid
from serve.core.routes import MAX_WEIGHT, Route, RouteMatch, Split, draw_of
from serve.core.snapshot import VersionTarget


def test_a_split_is_written_as_version_equals_weight_and_sorted_by_version() -> None:
    split = Split.parse(["10=5", "2=90", "1=5"])
    assert split.shares == ((1, 5), (2, 90), (10, 5))
    assert str(split) == "1=5 2=90 10=5"


def test_a_split_reads_what_it_writes() -> None:
    split = Split.of({3: 1, 1: 0, 2: MAX_WEIGHT})
    assert Split.parse(str(split).split()) == split
    assert Split.of({1: MAX_WEIGHT}).total == MAX_WEIGHT


def test_a_version_without_weight_is_kept_but_receives_nothing() -> None:
    split = Split.parse(["1=0", "2=3", "9=4"])
    assert split.shares == ((1, 0), (2, 3), (9, 4))
    assert (split.versions, split.total) == ((2, 9), 7)


def test_splits_with_the_same_shares_are_equal() -> None:
    assert Split.parse(["2=1", "1=3"]) == Split.of({1: 3, 2: 1})
    assert hash(Split.parse(["1=3"])) == hash(Split.of({1: 3}))
    assert Split.parse(["1=3"]) != Split.parse(["1=6"])


def test_anything_else_is_no_split() -> None:
    for term in (
        *("", "1", "=1", "1=", "1=0", "0=1", "-1=1", "1=-1", "1=1.5", "1.0=1", "1=1=1"),
        *("stable=1", "1=50%", " 1=1", "٣=1", "1=٣", f"1={MAX_WEIGHT + 1}"),
    ):
        refusal(Invalid, Split.parse, [term])
    for terms in ([], ["1=0", "2=0"], ["1=1", "1=2"], ["1=1", "01=2"]):
        refusal(Invalid, Split.parse, terms)
    for weights in ({}, {1: 0}, {0: 1}, {-2: 1}, {1: -1}, {1: MAX_WEIGHT + 1}):
        refusal(Invalid, Split.of, weights)


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
    assert draw_of("m", "s\ud800") != draw_of("m", "s\ud801")  # half a character is a word, too
    assert draw_of("ab", "c") != draw_of("a", "bc")


def test_draws_of_many_words_are_spread_evenly() -> None:
    counts = Counter(int(draw_of("m", str(n)) * 10) for n in range(10_000))
    assert set(counts) == set(range(10))
    assert all(900 < count < 1100 for count in counts.values())


USERS = [f"user-{number}" for number in range(20_000)]


def assigned(text: str) -> dict[str, int]:
    """The version of each user."""
    split = Split.parse(text.split())
    return {user: split.assign("m", user) for user in USERS}


def test_identities_are_divided_by_the_weights() -> None:
    counts = Counter(assigned("1=90 2=9 3=1 4=0").values())
    for version, share in ((1, 0.90), (2, 0.09), (3, 0.01)):
        deviation = 4 * math.sqrt(share * (1 - share) / len(USERS))
        assert abs(counts[version] / len(USERS) - share) < deviation, counts
    assert 4 not in counts
    half = Split.parse(["1=1", "2=1"])  # each model divides them in another way
    assert any(half.assign("m", user) != half.assign("n", user) for user in USERS[:100])


def test_only_the_share_that_moved_moves() -> None:
    """A version whose weight rises relative to the others gets calls; nobody else moves."""
    for before, after, risen, share in (
        ("1=90 2=10", "1=80 2=20", {2}, 0.10),
        ("1=90 2=10", "1=100 2=0", {1}, 0.10),
        ("1=50 2=50", "1=45 2=45 3=10", {3}, 0.10),
        ("1=9 2=1", "1=90 2=10", set(), 0.0),
    ):
        old, new = assigned(before), assigned(after)
        moved = [user for user in USERS if old[user] != new[user]]
        assert {new[user] for user in moved} == risen
        deviation = 4 * math.sqrt(share * (1 - share) / len(USERS))
        assert abs(len(moved) / len(USERS) - share) <= deviation, (before, after)


def test_a_route_reads_what_it_writes_and_what_was_written_before_it_had_rules() -> None:
    matches = (RouteMatch.parse("header:X-Team=blue* 2=100"), RouteMatch.parse("key:3f* 1=1 2=1"))
    route = Route(Split.parse(["1=90", "2=10"]), "header:x-user", matches, 3)
    assert Route.from_json(route.to_json()) == route
    assert [str(match) for match in matches] == ["header:x-team=blue* 2=100", "key:3f* 1=1 2=1"]
    assert Route.from_json({"split": {"1": 100}}) == Route(Split.of({1: 100}))
    assert Route(Split.of({1: 100})).to_json() == {"split": {"1": 100}}


def test_a_route_knows_all_versions_that_it_names() -> None:
    match = RouteMatch.parse("key:a 2=1 3=0")
    route = Route(Split.of({1: 100, 2: 0}), matches=(match,))
    assert route.weights == {1: 100, 2: 1, 3: 0}
    assert route.versions == (1, 2)
    assert Route(route.split, fallback=2).versions == (1, 2)


def test_what_is_no_match_or_identity_is_refused_with_an_example() -> None:
    for text in (
        *("", "blue 2=1", "header:x-team 2=1", "key: 2=1", "cookie:a=b 2=1", "header:ä=b 2=1"),
    ):
        assert refusal(Invalid, RouteMatch.parse, text).try_this, text
    for sticky in ("cookie", "header:", "header:X-User", "header:authorization", "keys"):
        assert refusal(Invalid, Route, Split.of({1: 1}), sticky).try_this, sticky


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
