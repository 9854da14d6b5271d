"""Delivery: bringing the files of published versions to where the Tritons read them."""

from collections.abc import Collection
from typing import Protocol

from serve.control.versions import PublishedVersion

Slot = tuple[str, int]  # the physical name of a version, and its number


class Delivery(Protocol):
    """One way of delivering; see `settings.delivery`."""

    async def deliver(self, wanted: Collection[PublishedVersion], held: Collection[Slot]) -> None:
        """Bring every wanted version to the Tritons; take away what is neither wanted nor held.

        Returns when all is tried. What fails is told by `problem`, and tried again at the next
        call; nobody ever sees a version folder that is not whole.
        """

    def has(self, replica: str, version: PublishedVersion) -> bool:
        """Whether this replica's Triton would find the version if it was told to load it now."""

    def problem(self, replica: str, version: PublishedVersion) -> str:
        """Why the version is not there; empty while nothing is wrong."""
