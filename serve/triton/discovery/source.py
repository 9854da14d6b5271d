"""Sources: who tells which Tritons there are, and to whom."""

from typing import Protocol

from serve.core.errors import ServegateError
from serve.triton.discovery.endpoints import Listing


class Listener(Protocol):
    """Hears of one source. What was told last holds until something else is told."""

    def told(self, listing: Listing) -> None:
        """This is all that there is."""

    def well(self) -> None:
        """It answers as it should, now."""

    def failed(self, error: ServegateError) -> None:
        """It does not answer, or not as it should."""


class ReplicaSource(Protocol):
    """Tells all that there is, each time that it changes."""

    async def run(self, listener: Listener) -> None:
        """Tell until cancelled, whatever goes wrong."""
