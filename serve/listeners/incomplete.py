"""Incomplete calls: how many each caller has whose bodies have not come whole.

They hold no slot of their model until they can be sent, but memory and connections. So each key and
each address may have a limited number. An ingress is one address for many callers, and complete
calls are not counted: they wait for nothing but a Triton.

The sweepers count: a call is incomplete if it is when a sweep looks at it, so one that comes
quickly costs nothing here. A call that is new is compared with what the last sweep has found and
with the new ones before it, so the calls that came first stay.
"""

from collections import Counter

from serve.core.errors import TooManyIncomplete


class Incomplete:
    """Of one port of a worker; `most` is what each caller may have."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: Counter[str | bytes] = Counter()  # found by the last sweep, and new ones
        self._found: Counter[str | bytes] = Counter()

    def __repr__(self) -> str:
        return f"<Incomplete {self._before.total()} most={self._most}>"

    def turn(self) -> None:
        """A sweep begins."""
        self._before, self._found = self._found, Counter()

    def count(self, peer: str, key: bytes, *, is_new: bool) -> None:
        """Count a call of this address (with its port) and credential; `TooManyIncomplete`."""
        address = peer.rpartition(":")[0]
        callers = [caller for caller in (address, key) if caller]
        if is_new:
            for caller in callers:
                if self._before[caller] >= self._most:
                    raise TooManyIncomplete("key" if caller is key else "address", self._most)
            self._before.update(callers)
        self._found.update(callers)
