"""Rows, targets, cores, and the bounds of shares."""

import argparse

import pytest

from loadtests.bench import goals, rows
from loadtests.bench.machine import share_out
from loadtests.bench.replay import DATA, END_STREAM, frame
from loadtests.bench.targets import Target, given, pair
from loadtests.bench.verifying import Wrong, check_shares


def test_all_rows_have_names_of_their_own():
    assert len({row.name for row in rows.ROWS}) == len(rows.ROWS)


def test_goals_are_for_rows_that_exist():
    named = {*goals.CPU, *goals.RATE, *goals.ADDED_P50}
    assert named <= {row.name for row in rows.ROWS}


def test_a_row_can_be_chosen_by_its_name_even_in_a_quick_run():
    (row,) = rows.choose(["http-64MiB"], quick=True)
    assert not row.quick


def test_a_quick_run_has_fewer_rows():
    assert 0 < len(rows.choose([], quick=True)) < len(rows.choose([], quick=False))


def test_a_row_that_does_not_exist_is_named():
    with pytest.raises(ValueError, match="no row is called nope"):
        rows.choose(["nope"], quick=False)


def test_a_row_with_a_large_answer_asks_for_it_in_a_field():
    (row,) = rows.choose(["http-answer-4MiB"], quick=False)
    assert ("answer-bytes", str(4 << 20)) in rows.payload(row).fields


def test_running_targets_are_given_by_url_and_pid():
    targets = given([("a", "http://127.0.0.1:1/"), ("b", "http://127.0.0.1:2")], [("b", "42")])
    assert targets == (
        Target("a", "http://127.0.0.1:1", "http://127.0.0.1:1"),
        Target("b", "http://127.0.0.1:2", "http://127.0.0.1:2", 42),
    )


def test_a_pid_of_a_target_that_was_not_given_is_an_error():
    with pytest.raises(ValueError, match="ghost"):
        given([("a", "http://127.0.0.1:1")], [("ghost", "42")])


@pytest.mark.parametrize("text", ["", "a", "=b", "a="])
def test_what_is_no_pair_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError):
        pair(text)


def test_on_two_cores_the_proxy_has_one_and_everything_else_the_other():
    cores = share_out([0, 1])
    assert cores.proxy == ("taskset", "-c", "1")
    assert cores.load == cores.upstream == ("taskset", "-c", "0")


def test_with_four_cores_the_generator_has_one_to_itself():
    cores = share_out([0, 1, 2, 3])
    assert (cores.proxy[-1], cores.load[-1]) == ("3", "2")
    assert cores.upstream[-1] == "0,1"


def test_a_single_core_is_shared():
    assert share_out([0]).proxy == ()


def test_shares_within_the_bounds_of_a_fair_draw_are_right():
    check_shares({1: 9050, 2: 950}, {1: 90, 2: 10})


def test_shares_that_no_fair_draw_gives_are_wrong():
    with pytest.raises(Wrong, match="version 1 got 8500 of 10000 calls, not 9000"):
        check_shares({1: 8500, 2: 1500}, {1: 90, 2: 10})


def test_a_gateway_that_has_counted_nothing_is_wrong():
    with pytest.raises(Wrong, match="no call"):
        check_shares({}, {1: 90, 2: 10})


def test_a_frame_is_laid_out_as_http2_says():
    assert frame(DATA, END_STREAM, 5, b"abc") == b"\0\0\3\0\1\0\0\0\5abc"
