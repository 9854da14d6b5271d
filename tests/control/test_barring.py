"""What is barred is found by version and by replica, and leaves nothing behind."""

from serve.control.barring import Barring


def barring() -> Barring:
    made = Barring()
    made.put("a", ("m", 1), "wrong")
    made.put("a", ("n", 1), "loading")
    made.put("b", ("m", 1), "loading")
    return made


def test_it_is_found_from_both_sides() -> None:
    made = barring()
    assert dict(made.on("a")) == {("m", 1): "wrong", ("n", 1): "loading"}
    assert (made.where(("m", 1)), made.where(("m", 2))) == ({"a", "b"}, set())
    assert (made.has("a", ("m", 1)), made.has("b", ("n", 1))) == (True, False)
    assert made.because_of("loading") == {("m", 1), ("n", 1)}


def test_the_last_reason_counts() -> None:
    made = barring()
    made.put("a", ("m", 1), "loading")
    assert dict(made.on("a"))["m", 1] == "loading"
    assert made.because_of("wrong") == frozenset()


def test_what_is_taken_is_gone_and_the_others_stay() -> None:
    made = barring()
    made.take("a", ("m", 1))
    made.take("a", ("m", 1))
    made.take("z", ("m", 1))
    assert made.where(("m", 1)) == {"b"}
    assert (made.has_any("a"), made.has_any("b"), made.has_any("z")) == (True, True, False)


def test_everything_on_a_replica_may_be_dropped_also_while_it_is_walked_through() -> None:
    made = barring()
    for slot, _ in made.on("a"):
        made.take("a", slot)
    made.drop("b")
    made.drop("z")
    assert not made.has_any("a") and not made.has_any("b")
    assert repr(made) == "<Barring 0>"
