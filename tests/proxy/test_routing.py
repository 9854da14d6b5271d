"""Routing: each row of its table, and what is said when no version can answer."""

from dataclasses import dataclass, replace
from typing import Unpack

import pytest
from builders import call, snapshot, target, view
from refusals import refusal

from serve.core.calls import Account, Choice, Verb
from serve.core.errors import (
    Asleep,
    BadVersion,
    NoReplica,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
)
from serve.core.routes import RouteMatch, RouteRules, Split
from serve.core.snapshot import ModelView
from serve.proxy.routing import Routing

SPLIT = view(target(1), target(2), target(3), split="1=3 2=1", labels={"stable": 1, "gone": 9})
NEWEST = view(target(1), target(2))


def ruled(split: Split | None = None, **rules: Unpack[RouteRules]) -> ModelView:
    """`SPLIT` with these rules, and another split if one is given."""
    assert SPLIT.route is not None
    return replace(SPLIT, route=replace(SPLIT.route, split=split or SPLIT.route.split, **rules))


def pick(
    model: ModelView,
    *,
    verb: Verb = Verb.INFER,
    selector: str = "",
    sequence: str = "",
    draw: float = 0.0,
) -> Choice:
    asked = call(verb, selector=selector, sequence=sequence)
    return Routing(snapshot(model, generation=7)).choose(asked, lambda: draw)


def test_a_call_that_names_a_version_gets_it() -> None:
    for selector, version, by in (
        ("3", 3, "number"),
        ("03", 3, "number"),
        ("stable", 1, "label:stable"),
    ):
        chosen = pick(SPLIT, selector=selector)
        assert (chosen.target.version, chosen.by, chosen.pinned) == (version, by, True)


def test_a_call_that_names_none_follows_the_split() -> None:
    for draw, version in ((0.0, 1), (0.74, 1), (0.75, 2), (0.99, 2)):
        chosen = pick(SPLIT, draw=draw)
        assert (chosen.target.version, chosen.by, chosen.pinned) == (version, "split", True), draw


def test_without_a_route_the_highest_version_answers_as_in_triton() -> None:
    chosen = pick(NEWEST)
    assert (chosen.target.version, chosen.by, chosen.pinned) == (2, "latest", True)


def test_a_route_to_one_version_needs_no_draw() -> None:
    def never() -> float:
        raise AssertionError("a draw was made")

    one = view(target(1), target(2), split="1=5 2=0")
    chosen = Routing(snapshot(one)).choose(call(), never)
    assert (chosen.target.version, chosen.by) == (1, "split")


def test_a_sequence_keeps_its_version_whatever_is_drawn() -> None:
    expected = Split.parse(["1=3", "2=1"]).assign("m", "n77")
    chosen = {pick(SPLIT, sequence="n77", draw=n / 10).target.version for n in range(10)}
    assert chosen == {expected}


@dataclass
class Said:
    """The origin of a call: its headers."""

    headers: dict[str, str]

    def account(self) -> Account:
        raise NotImplementedError

    def header(self, name: bytes) -> bytes:
        return self.headers.get(name.decode(), "").encode()


def route(model: ModelView, key: str = "", sequence: str = "", **headers: str) -> Choice:
    """The choice for a caller with this key and these headers, where a draw gives version 1."""
    asked = call(sequence=sequence)
    asked.origin = Said({name.replace("_", "-"): value for name, value in headers.items()})
    return Routing(snapshot(model), lambda _: key).choose(asked, lambda: 0.0)


def test_a_sticky_caller_keeps_its_version_and_one_that_is_not_named_is_drawn() -> None:
    for sticky, name in (("header:x-user", "x_user"), ("request-id", "x_request_id")):
        model = ruled(sticky=sticky)
        found = {f"u{n}": route(model, **{name: f"u{n}"}) for n in range(100)}
        assert {one.target.version for one in found.values()} == {1, 2}
        assert {one.by for one in found.values()} == {"sticky"}
        for user, chosen in found.items():
            assert route(model, **{name: user}).target == chosen.target
        assert route(model, x_other="u1").by == "split"
    by_key = ruled(sticky="key")
    assert {route(by_key, key=f"k{n}").target.version for n in range(100)} == {1, 2}
    assert route(by_key, key="").by == "split"


def test_the_first_match_that_takes_a_call_decides_and_a_named_version_goes_before() -> None:
    blue = RouteMatch(Split.of({2: 1}), header="x-team", value="blue*")
    ours = RouteMatch(Split.of({3: 1}), key="3f*")
    model = ruled(matches=(blue, ours))
    for key, team, version, by in (
        ("", "blue-7", 2, "match"),
        ("3f01", "blue", 2, "match"),
        ("3f01", "red", 3, "match"),
        ("", "red", 1, "split"),
        ("", "", 1, "split"),
    ):
        chosen = route(model, key, x_team=team)
        assert (chosen.target.version, chosen.by) == (version, by), (key, team)
    asked = call(selector="1")
    asked.origin = Said({"x-team": "blue"})
    assert Routing(snapshot(model)).choose(asked, lambda: 0.0).by == "number"


def test_a_match_of_several_versions_is_sticky_too() -> None:
    halves = RouteMatch(Split.of({2: 1, 3: 1}), header="x-team", value="blue")
    model = ruled(sticky="header:x-user", matches=(halves,))
    found = {n: route(model, x_team="blue", x_user=f"u{n}") for n in range(50)}
    assert {(one.target.version, one.by) for one in found.values()} == {(2, "match"), (3, "match")}
    assert all(route(model, x_team="blue", x_user=f"u{n}") == one for n, one in found.items())
    assert route(model, sequence="n1", x_team="blue").by == "match"


def test_calls_whose_version_nobody_has_go_to_the_fallback_unless_they_name_it() -> None:
    lost = RouteMatch(Split.of({9: 1}), key="3f*")
    model = ruled(Split.of({7: 1}), matches=(lost,), fallback=2)
    for key in ("", "3f01"):
        chosen = route(model, key)
        assert (chosen.target.version, chosen.by) == (2, "fallback"), key
    assert route(ruled(fallback=3)).by == "split"
    with pytest.raises(NoReplica):
        route(ruled(Split.of({7: 1}), fallback=8))
    with pytest.raises(Asleep):
        route(replace(model, asleep=True))
    with pytest.raises(UnknownVersion):
        pick(model, selector="9")


def test_a_match_whose_version_is_nowhere_loaded_is_no_reason_for_another_version() -> None:
    model = ruled(matches=(RouteMatch(Split.of({9: 1}), key="*"),))
    with pytest.raises(NoReplica):
        route(model, "k")


def test_without_a_route_a_sequence_is_answered_by_the_latest_version() -> None:
    chosen = pick(NEWEST, sequence="n77")
    assert (chosen.target.version, chosen.by) == (2, "latest")


def test_the_messages_of_a_stream_are_routed_like_calls() -> None:
    drawn = pick(SPLIT, verb=Verb.STREAM, draw=0.9)
    assert (drawn.target.version, drawn.by, drawn.pinned) == (2, "split", True)
    assert pick(SPLIT, verb=Verb.STREAM, sequence="n77").by == "sequence"


def test_a_choice_knows_whether_the_model_serves_sequences() -> None:
    for sequences in (False, True):
        model = view(target(1), sequences=sequences)
        for selector in ("", "1"):
            assert pick(model, selector=selector).stateful is sequences


def test_a_choice_is_made_once_per_snapshot() -> None:
    routing = Routing(snapshot(SPLIT))
    draws = iter([0.0, 0.9, 0.1, 0.8])
    one, two, three, four = (routing.choose(call(), lambda: next(draws)) for _ in range(4))
    assert one is three and two is four
    assert one is not two


def test_choices_that_differ_in_anything_are_kept_apart() -> None:
    routing = Routing(snapshot(SPLIT))
    asked = [
        call(),
        call(selector="1"),
        call(selector="stable"),
        call(sequence="n1"),
        call(Verb.METADATA),
        call(Verb.METADATA, selector="1"),
    ]
    chosen = [routing.choose(one, lambda: 0.0) for one in asked]
    assert [(one.by, one.pinned) for one in chosen] == [
        ("split", True),
        ("number", True),
        ("label:stable", True),
        ("sequence", True),
        ("split", False),
        ("number", True),
    ]
    assert repr(routing) == "<Routing generation=1 choices=5>"


def test_questions_about_the_whole_model_name_no_version_to_triton() -> None:
    for verb in (Verb.METADATA, Verb.CONFIG, Verb.STATS):
        chosen = pick(SPLIT, verb=verb, draw=0.99)
        assert (chosen.target.version, chosen.pinned) == (1, False), verb


def test_readiness_is_asked_of_the_version_with_the_largest_share() -> None:
    chosen = pick(view(target(1), target(2), split="1=1 2=9"), verb=Verb.READY)
    assert (chosen.target.version, chosen.pinned) == (2, True)


def test_an_unknown_model_is_said_in_tritons_words() -> None:
    with pytest.raises(UnknownModel, match="Request for unknown model: 'm' is not found"):
        Routing(snapshot()).choose(call(), lambda: 0.0)


def test_an_unknown_number_is_an_unknown_version() -> None:
    for selector in ("9", "0", "9" * 18):
        refusal(UnknownVersion, pick, SPLIT, selector=selector)


def test_a_number_that_triton_cannot_count_to_is_refused() -> None:
    for selector in ("9" * 19, "9" * 5000):
        assert r"version should be an integral value > 0" in str(
            refusal(BadVersion, pick, SPLIT, selector=selector)
        ), selector


def test_a_word_that_is_no_label_is_an_unknown_label() -> None:
    for selector in ("canary", "-1", "1.0", "٣", "Stable"):
        assert "gone, stable" in str(refusal(UnknownLabel, pick, SPLIT, selector=selector))


def test_a_label_whose_version_nobody_holds_is_unavailable_not_unknown() -> None:
    with pytest.raises(NoReplica, match="version 9"):
        pick(SPLIT, selector="gone")


def test_a_route_to_a_version_that_nobody_holds_is_unavailable() -> None:
    with pytest.raises(NoReplica, match="the route sends traffic to it"):
        pick(view(target(1), split="1=1 2=1"), draw=0.9)


def test_a_model_that_nobody_holds_is_unavailable() -> None:
    for selector in ("", "1"):
        refusal(NoReplica, pick, view(), selector=selector)
