"""What the gateway asks of an access log."""

from dataclasses import dataclass
from typing import Protocol

from serve.core.calls import Account, Call, Choice
from serve.core.replicas import Replica

_NOTHING = Account()


@dataclass(frozen=True, slots=True)
class EndedCall:
    """A call that has ended. `code` is the answer's status, or that of an `error` of our own.

    `seconds` from a complete head to the end, `tries` the replicas that were asked, `key` the id of
    the valid key that was shown (empty when none was, or none is needed).
    """

    call: Call
    choice: Choice | None
    replica: Replica
    code: str
    seconds: float
    error: str = ""
    tries: int = 0
    good: bool = False
    key: str = ""

    def account(self) -> Account:
        """What the listener knows of it."""
        origin = self.call.origin
        return _NOTHING if origin is None else origin.account()


class Journal(Protocol):
    """The access log, as the gateway knows it."""

    def takes(self) -> bool:
        """Whether the next good call is to be written down."""

    def write(self, ended: EndedCall) -> None:
        """One line. It must not raise: the call has an answer already."""
