"""Numbers as people read them: three figures, a unit, and never more than was measured."""

import math

from serve.workbench.loadtest.reports.amounts import figures, rate_text, share_text, time_text


def test_times_have_the_unit_of_their_size() -> None:
    times = {
        0.0: "0 µs",
        0.00085: "850 µs",
        0.000999: "999 µs",
        0.0009996: "1.00 ms",
        0.0123: "12.3 ms",
        0.9994: "999 ms",
        0.9996: "1.00 s",
        59.96: "60.0 s",
        192: "3.2 min",
        math.nan: "–",
        math.inf: "–",
    }
    assert {each: time_text(each) for each in times} == times


def test_shares_are_never_rounded_to_none_or_all() -> None:
    shares = {0.0: "0 %", 1.0: "100 %", 0.5: "50.0 %", 0.00123: "0.12 %", 0.0000312: "0.003 %"}
    shares |= {0.99999: "99.999 %", math.nan: "–"}
    assert {each: share_text(each) for each in shares} == shares


def test_numbers_have_three_figures() -> None:
    numbers = {0: "0.00", 0.0123: "0.012", 1.234: "1.23", 9.996: "10.0", 99.96: "100"}
    assert {each: figures(each) for each in numbers} == numbers
    assert figures(1e5) == "100000"
    assert (rate_text(198.2), rate_text(math.nan)) == ("198/s", "–")
