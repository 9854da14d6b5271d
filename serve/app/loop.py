"""The event loop of a child process, and how an error that ends it is told."""

import sys
from collections.abc import Coroutine
from typing import Any

import uvloop

from serve.core.errors import ServegateError


def run(name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run this in a loop of its own; what keeps it from working is told in a sentence, exit 1."""
    try:
        uvloop.run(work)
    except* ServegateError as errors:
        for error in errors.exceptions:
            sys.stderr.write(f"servegate {name}: {error}\n")  # whole: workers share one pipe
        sys.exit(1)
