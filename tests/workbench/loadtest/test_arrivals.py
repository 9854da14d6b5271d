"""When calls should start."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import Invalid
from serve.core.texts import parse_seconds
from serve.workbench.loadtest.arrivals import (
    curve,
    intended,
    opening_rate,
    parse_arrivals,
    starts,
)
from serve.workbench.loadtest.plan import Arrivals, RateShape, Spacing

EVEN = Spacing.EVEN
SHAPES = (
    Arrivals(100),
    Arrivals(100, RateShape.RAMP, levels=(10, 200)),
    Arrivals(100, RateShape.RAMP, levels=(200, 0)),
    Arrivals(100, RateShape.RAMP, levels=(0, 200)),
    Arrivals(100, RateShape.STEP, levels=(50, 0, 250)),
    Arrivals(100, RateShape.SPIKE, levels=(5,), at=6, lasting=3),
    Arrivals(100, RateShape.SPIKE, levels=(5,), at=0, lasting=100),
    Arrivals(100, RateShape.SPIKE, levels=(0,), at=25, lasting=10),
    Arrivals(100, RateShape.DIURNAL, levels=(9,), lasting=8),
    Arrivals(100, RateShape.DIURNAL, levels=(1000,), lasting=8),
    Arrivals(100, RateShape.DIURNAL, levels=(1,), lasting=100),
)


@pytest.mark.parametrize("arrivals", SHAPES, ids=str)
def test_the_inverse_undoes_the_integral(arrivals: Arrivals) -> None:
    shape = curve(arrivals, 30)
    values = np.linspace(0, shape.integral(30) - 1e-6, 999)
    seconds = shape.inverse(values)
    assert [shape.integral(each) for each in seconds] == pytest.approx(values, abs=1e-6)
    assert np.all(np.diff(seconds) >= 0)
    assert np.all((seconds >= 0) & (seconds < 30))


@pytest.mark.parametrize("arrivals", SHAPES, ids=str)
def test_a_poisson_process_has_the_rate_of_its_shape(arrivals: Arrivals) -> None:
    counts = np.sum([intended(arrivals, 30, seed=seed) for seed in range(40)], axis=0)
    shape = curve(arrivals, 30)
    meant = 40 * np.diff([shape.integral(second) for second in range(31)])
    assert np.all(np.abs(counts - meant) <= 4.5 * np.sqrt(meant))


def test_even_starts_follow_their_shape() -> None:
    counts = {
        Arrivals(4, spacing=EVEN): (4, 4, 4, 4),
        Arrivals(99.5, spacing=EVEN): (100, 99, 100, 99),
        Arrivals(20, RateShape.STEP, EVEN, levels=(10, 50)): (10, 10, 50, 50),
        Arrivals(20, RateShape.STEP, EVEN, levels=(10, 0)): (10, 10, 0, 0),
        Arrivals(0, RateShape.RAMP, EVEN, levels=(0, 40)): (5, 15, 25, 35),
        Arrivals(10, RateShape.SPIKE, EVEN, levels=(5,), at=1, lasting=2): (10, 50, 50, 10),
    }
    assert {each: intended(each, 4, seed=1) for each in counts} == counts


def test_a_diurnal_rate_goes_up_first_and_returns_to_its_mean() -> None:
    counts = intended(Arrivals(100, RateShape.DIURNAL, EVEN, levels=(9,), lasting=8), 8, seed=1)
    assert sum(counts) == 800
    assert max(counts) == counts[1] == pytest.approx(172, abs=2)
    assert min(counts) == counts[5] == pytest.approx(28, abs=2)


def test_the_seed_decides_and_a_run_opens_with_its_first_rate() -> None:
    drawn = [list(starts(Arrivals(50), 9, seed=seed)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    steps = Arrivals(7, RateShape.STEP, levels=(3, 9))
    ramp = Arrivals(7, RateShape.RAMP, levels=(0, 14))
    assert [opening_rate(each) for each in (Arrivals(7), steps, ramp)] == [7, 3, 1]


def test_workers_share_the_arrivals_of_one() -> None:
    for arrivals in (Arrivals(3000), Arrivals(0, RateShape.TRACE, times=(0, 1, 2, 5))):
        parts = [starts(arrivals, 9, seed=1, worker=each, workers=3) for each in range(3)]
        assert sorted(itertools.chain(*parts)) == list(starts(arrivals, 9, seed=1))


def test_a_trace_is_cut_at_the_runs_end() -> None:
    trace = Arrivals(1, RateShape.TRACE, times=(0.0, 0.5, 2.0, 2.5))
    assert list(starts(trace, 2, seed=1)) == [0.0, 0.5]
    assert intended(trace, 2.5, seed=1) == (2, 0, 1)


def test_arrivals_are_read_from_text() -> None:
    meanings = {
        "poisson": Arrivals(200),
        "constant": Arrivals(200, spacing=EVEN),
        "constant,poisson": Arrivals(200),
        "ramp:10..200": Arrivals(105, RateShape.RAMP, levels=(10, 200)),
        "step:50,100,210": Arrivals(120, RateShape.STEP, levels=(50, 100, 210)),
        "step:50,100,even": Arrivals(75, RateShape.STEP, EVEN, levels=(50, 100)),
        "spike:x5@30s+500ms": Arrivals(200, RateShape.SPIKE, levels=(5,), at=30, lasting=0.5),
        "spike:x0@1m+10,even": Arrivals(200, RateShape.SPIKE, EVEN, (0,), at=60, lasting=10),
        "diurnal:x9@60s": Arrivals(200, RateShape.DIURNAL, levels=(9,), lasting=60),
    }
    assert {text: parse_arrivals(text, 200) for text in meanings} == meanings


def test_text_that_says_no_arrivals_is_told_what_would() -> None:
    for text, word in {
        "": "allowed values: poisson",
        "bursty": "allowed values: poisson",
        "poisson,even": "allowed values: poisson",
        "constant:5": "allowed values: poisson",
        "ramp:10": "ramp:10..200",
        "ramp:0..0": "ramp:10..200",
        "ramp:a..b": "'a' is not a number",
        "step:1,-2": "'-2' is not a number",
        "step:nan": "'nan' is not a number",
        "spike:5@30s+10s": "spike:x5@30s+10s",
        "spike:x5@soon+10s": "'soon' is not a duration",
        "diurnal:x0.5@60s": "diurnal:x9@60s",
        "diurnal:x9@0s": "diurnal:x9@60s",
        "trace:": "trace:FILE.csv*2",
        "trace:a.csv*0": "trace:FILE.csv*2",
    }.items():
        error = refusal(Invalid, parse_arrivals, text, 200)
        assert word in str(error) and error.try_this, text


def test_a_rate_is_above_zero_where_it_is_needed() -> None:
    for rate in (0, -1, float("nan"), float("inf")):
        refusal(Invalid, parse_arrivals, "poisson", rate)
        assert parse_arrivals("ramp:10..20", rate).rate == 15


def test_lengths_of_time_are_read_from_text() -> None:
    texts = {"500ms": 0.5, "60s": 60, "5m": 300, "2h": 7200, "90": 90, "1.5s": 1.5, "0": 0}
    assert {text: parse_seconds(text) for text in texts} == texts
    for wrong in ("", "s", "-1s", "1 day", "1e3", "5min", "nan"):
        with pytest.raises(Invalid, match="number with the unit ms, s, m or h"):
            parse_seconds(wrong)


def trace_of(folder: Path, text: str, suffix: str = "") -> Arrivals:
    path = folder / "trace.csv"
    path.write_text(text, errors="surrogateescape")
    return parse_arrivals(f"trace:{path}{suffix}", 1)


def test_a_trace_of_dates_is_read_from_its_first_start(tmp_path: Path) -> None:
    trace = trace_of(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
        "2023-11-16 18:17:05.9799600,110,27\n",
    )
    assert trace.times == pytest.approx((0, 0.052, 2), abs=1e-5)
    assert trace.rate == pytest.approx(1.5, rel=1e-5)


def test_seconds_of_a_trace_may_stand_in_any_column_and_order(tmp_path: Path) -> None:
    for text, suffix, times in (
        ("10\n14\n12\n\n", "*2", (0, 1, 2)),
        ("user,at\nanna,7.5\nben,8\n", "", (0, 0.5)),
        ("3\n", "", (0,)),
    ):
        trace = trace_of(tmp_path, text, suffix)
        assert trace.times == times
        assert trace.rate > 0


def test_a_trace_without_times_or_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    for text, word in {
        "": "the file has no rows",
        "time\n": "the file has no rows",
        "time\nsoon\n": "row 2",
        "1,2\nx,3\n": "times are in column 1",
        "user,at\nanna,1\nben\n": "times are in column 2",
        "1\nnan\n": "row 2",
        "\udcff": "not a CSV file",
    }.items():
        assert word in str(refusal(Invalid, trace_of, tmp_path, text)), text
    error = refusal(Invalid, parse_arrivals, f"trace:{tmp_path / 'none.csv'}", 1)
    assert "none.csv: No such file" in str(error)
