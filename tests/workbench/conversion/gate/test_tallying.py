"""One output in one call: what is too unsteady to be judged hides nothing beside it."""

import numpy as np

from serve.workbench.conversion.gate.tallies import JudgedOutput, OutputTally


def beside_an_unsteady(value):
    """Two elements: one is lost where the source is too unsteady, the other should be 1."""
    got, expected = np.array([np.nan, value]), np.array([1.0, 1.0])
    gaps = np.array([np.inf, abs(value - 1.0)])
    return JudgedOutput(got, expected, gaps, np.array([np.inf, 0.1]), np.asarray(1.0))


def test_an_element_that_is_not_judged_hides_no_wrong_one():
    judged = beside_an_unsteady(2.0)
    assert judged.excess == 10
    assert judged.place == (1,)
    assert not judged.is_lost


def test_an_element_that_is_not_judged_does_not_count_as_an_error():
    tally = OutputTally("y")
    tally.add(beside_an_unsteady(1.05), "normal")
    error = tally.error()
    assert 0 < error.excess < 1
    assert (error.elements, tally.unjudged) == (2, 1)
