"""How many calls of each model are under way: what arrivals are counted with."""

from builders import DataPlane, call, snapshot, target, view

from serve.core.errors import Asleep, ServegateError
from serve.proxy.attempts import Attempt


class Caller:
    """Somebody whose call waits."""

    def on_awake(self, attempt: Attempt) -> None:
        pass

    def on_asleep(self, error: ServegateError) -> None:
        pass

    def on_fault(self, error: Exception) -> None:
        pass


def test_calls_count_from_their_beginning_to_their_end() -> None:
    plane = DataPlane(snapshot(view(target()), view(target(model="n"), name="n")))
    first, second = plane.begin(), plane.begin()
    other = plane.begin(call(model="n"))
    assert plane.gateway.calls == {"m": 2, "n": 1}
    first.answered(200, good=True)
    other.left()
    assert plane.gateway.calls == {"m": 1}
    second.answered(200, good=True)
    assert plane.gateway.calls == {}


def test_calls_that_wait_for_their_pool_count_as_well() -> None:
    plane = DataPlane(snapshot(view(asleep=True), view(target(model="n"), name="n")))
    plane.begin(call(model="n"))
    try:
        plane.begin()
    except Asleep:
        plane.gateway.wait(call(), Caller())
    assert plane.gateway.calls == {"m": 1, "n": 1}
    plane.waking.close()
    assert plane.gateway.calls == {"n": 1}
