"""The last event of a long command, however it ends, and its exit status."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import typer

from serve.cli.output import exit_code, say
from serve.cli.talk import CommandTalk
from serve.core.errors import CheckFailed, ConversionFailed, ServegateError, first_of

INTERRUPTED = 130


@contextlib.contextmanager
def report_end(talk: CommandTalk, stopped: Callable[[], str]) -> Iterator[None]:
    """Report a failure as the last event and raise it again; print `stopped()` after Ctrl-C."""
    try:
        yield
    except BaseExceptionGroup as errors:
        error = first_of(errors)
        if isinstance(error, ServegateError):
            talk.tell("result", ok=False, exit=exit_code(error), **failure(error))
            raise error from errors
        raise
    except ServegateError as error:
        talk.tell("result", ok=False, exit=exit_code(error), **failure(error))
        raise
    except (OSError, MemoryError) as error:
        talk.tell("result", ok=False, exit=1, code="error", what=str(error))
        raise
    except KeyboardInterrupt:
        say(stopped())
        talk.tell("result", ok=False, exit=INTERRUPTED, code="interrupted")
        raise typer.Exit(INTERRUPTED) from None


def failure(error: ServegateError) -> dict[str, Any]:
    """An error for programs."""
    page: dict[str, Any] = {
        "code": error.code,
        "what": error.what,
        "why": error.why,
        "try_this": error.try_this,
    }
    if isinstance(error, CheckFailed):
        page["findings"] = list(error.findings)
    if isinstance(error, ConversionFailed):
        page |= {"operator": error.operator, "node": error.node}
    return page
