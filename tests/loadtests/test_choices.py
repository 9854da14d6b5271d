"""Rows, targets, cores, and the bounds of shares."""

import pytest

from loadtests.bench import goals, rows
from loadtests.bench.machine import share_out
from loadtests.bench.targets import Target, given
from loadtests.bench.verifying import Wrong, check_shares


def test_goals_are_for_rows_that_exist():
    named = {*goals.CPU, *goals.RATE, *goals.ADDED_P50}
    assert named <= {row.name for row in rows.ROWS}


def test_a_row_can_be_chosen_by_its_name_even_in_a_quick_run():
    (row,) = rows.choose(["http-64MiB"], quick=True)
    assert not row.quick


def test_running_targets_are_given_by_url_and_pid():
    targets = given([("a", "http://127.0.0.1:1/"), ("b", "http://127.0.0.1:2")], [("b", "42")])
    assert targets == (
        Target("a", "http://127.0.0.1:1", "http://127.0.0.1:1"),
        Target("b", "http://127.0.0.1:2", "http://127.0.0.1:2", 42),
    )


def test_on_two_cores_the_proxy_has_one_and_everything_else_the_other():
    cores = share_out([0, 1])
    assert cores.proxy == ("taskset", "-c", "1")
    assert cores.load == cores.upstream == ("taskset", "-c", "0")


def test_with_four_cores_the_generator_has_one_to_itself():
    cores = share_out([0, 1, 2, 3])
    assert (cores.proxy[-1], cores.load[-1]) == ("3", "2")
    assert cores.upstream[-1] == "0,1"


def test_shares_within_the_bounds_of_a_fair_draw_are_right():
    check_shares({1: 9050, 2: 950}, {1: 90, 2: 10})


def test_shares_that_no_fair_draw_gives_are_wrong():
    with pytest.raises(Wrong, match="version 1 got 8500 of 10000 calls, not 9000"):
        check_shares({1: 8500, 2: 1500}, {1: 90, 2: 10})
