"""Windows: what is as old as the window is gone."""

from serve.workbench.simulator.baselines import TickWindow


def test_a_window_holds_the_last_seconds() -> None:
    window = TickWindow(3.0)
    for at in range(1, 7):
        window.add(float(at), 10.0 * at)
    assert list(window.values) == [40.0, 50.0, 60.0]
    assert (window.total, window.mean) == (150.0, 50.0)


def test_an_empty_window_is_0() -> None:
    assert (TickWindow(5.0).total, TickWindow(5.0).mean) == (0, 0.0)
