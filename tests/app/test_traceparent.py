"""`traceparent`, as W3C Trace Context has it."""

import pytest

from serve.app.spans import Parent, parent_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_the_callers_span_is_read_also_of_later_versions_which_may_say_more() -> None:
    for flags, sampled in (("01", True), ("00", False), ("03", True)):
        assert parent_of(f"00-{TRACE}-{SPAN}-{flags}") == Parent(TRACE, SPAN, sampled)
    assert parent_of(f"cc-{TRACE}-{SPAN}-01-what-comes-then") == Parent(TRACE, SPAN, True)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-0g",
    ],
)
def test_what_does_not_follow_the_form_says_nothing(text: str) -> None:
    assert parent_of(text) is None
