"""Stacks of a sampler become shares and a file for a flame graph."""

from loadtests.bench.hotspots import Stack, parse, shares, speedscope

TEXT = """thread (7): MainThread;run (loop.py:3);read (pool.py:10) 3
thread (7): MainThread;run (loop.py:4) 1
thread (9): Thread-1;wait (thread.py:1) 100
"""


def test_only_the_main_thread_counts():
    assert parse(TEXT) == (
        Stack(("run (loop.py:3)", "read (pool.py:10)"), 3),
        Stack(("run (loop.py:4)",), 1),
    )


def test_a_function_is_one_whatever_line_it_is_at():
    found = {one.function: one for one in shares(parse(TEXT))}
    assert found["run (loop.py)"].own == 0.25
    assert found["run (loop.py)"].whole == 1.0
    assert found["read (pool.py)"].own == 0.75


def test_the_file_holds_every_frame_once_and_every_stack_with_its_weight():
    page = speedscope(parse(TEXT), "a row")
    names = [frame["name"] for frame in page["shared"]["frames"]]
    (profile,) = page["profiles"]
    assert names == ["run (loop.py:3)", "read (pool.py:10)", "run (loop.py:4)"]
    assert profile["samples"] == [[0, 1], [2]]
    assert profile["weights"] == [3, 1]
    assert profile["endValue"] == 4
