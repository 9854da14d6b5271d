"""Request ids: what a call is named in its answer and in the logs.

A caller's own id is kept; to a call without a usable one a name is given. Either is told to the
caller, and the first also goes on to Triton, as every header does.
"""

import itertools
import re
import secrets
from collections.abc import Iterator

GIVEN = b"x-request-id"
TOLD = b"servegate-request-id"
_USABLE = re.compile(rb"[ -~]{1,128}")


def usable(value: bytes) -> bytes:
    """The id in a header's value; empty unless it is printable ASCII of 1 to 128 characters."""
    identity = value.strip(b" \t")
    return identity if _USABLE.fullmatch(identity) else b""


def fresh_ids() -> Iterator[bytes]:
    """Ids that nobody else makes: a random word, and a counter. One look-up makes one."""
    word = secrets.token_hex(6).encode()
    return map((word + b"-%x").__mod__, itertools.count(1))
