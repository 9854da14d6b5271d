"""The commands of the workbench: where they are found, and what is said where they are missing."""

from importlib import import_module
from types import ModuleType

import typer

from serve.cli.panels import Grouped
from serve.core.errors import CannotStart

WORKBENCH = "serve.workbench"
_ANY_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}


def add_group(app: typer.Typer, module: str, name: str) -> None:
    """Add `servegate NAME`, whose commands are the `app` of a module of the workbench."""
    found = _module(module)
    if found is None:
        _refuse(app, name, name)
    else:
        app.add_typer(found.app, name=name)


def add_command(app: typer.Typer, module: str, name: str, *, under: str) -> None:
    """Add `servegate UNDER NAME`, the function NAME of a module of the workbench."""
    found = _module(module)
    if found is None:
        _refuse(app, name, f"{under} {name}")
    else:
        app.command(name, cls=Grouped)(getattr(found, name))


def required(module: str, command: str) -> ModuleType:
    """A module of the workbench, for a command; `CannotStart` where it is missing."""
    found = _module(module)
    if found is None:
        raise _not_installed(command)
    return found


def _module(name: str) -> ModuleType | None:
    try:
        return import_module(f"{WORKBENCH}.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(WORKBENCH):
            return None
        raise


def _refuse(app: typer.Typer, name: str, command: str) -> None:
    @app.command(name, context_settings=_ANY_ARGUMENTS)
    def refuse() -> None:
        """Not installed."""
        raise _not_installed(command)


def _not_installed(command: str) -> CannotStart:
    return CannotStart(
        f"'servegate {command}' is not installed",
        why=f"this installation lacks its package in {WORKBENCH}",
        try_this="install the complete servegate package",
    )
