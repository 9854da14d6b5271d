"""The options of edits, which `set` and `lint` share: one command parameter stands for all."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields

from serve.cli.batching.edits import Edits


def with_edits(command: Callable[..., None]) -> Callable[..., None]:
    """A command with an option for each field of `Edits`, in the place of its parameter `edits`."""
    names = [one.name for one in fields(Edits)]

    @functools.wraps(command)
    def run(**said: object) -> None:
        edits = Edits(**{name: said.pop(name) for name in names})  # type: ignore[arg-type]
        command(**said, edits=edits)

    own = inspect.signature(command)
    options = [
        inspect.Parameter(
            one.name, inspect.Parameter.KEYWORD_ONLY, default=one.default, annotation=one.type
        )
        for one in fields(Edits)
    ]
    first, *rest = (one for one in own.parameters.values() if one.name != "edits")
    kept = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in rest]
    parameters = [first.replace(kind=inspect.Parameter.KEYWORD_ONLY), *options, *kept]
    setattr(run, "__signature__", own.replace(parameters=parameters))  # noqa: B010 — for typer
    return run
