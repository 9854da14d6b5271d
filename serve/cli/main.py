"""The `servegate` command: its groups, and how errors become exit codes."""

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

import serve
from serve.cli import (
    backup,
    compare,
    config,
    doctor,
    history,
    infer,
    keys,
    labels,
    models,
    replicas,
    route_files,
    routes,
    sync,
    up,
)
from serve.cli.batching import group as batching
from serve.cli.features import add_group
from serve.cli.hints import group as hints
from serve.cli.output import complain, exit_code
from serve.cli.panels import Grouped
from serve.core.errors import CannotStart, ServegateError

app = typer.Typer(
    name="servegate",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="""A gateway in front of NVIDIA Triton servers.

Examples:

  servegate up --model-repo model_repo --replicas 2

  servegate infer digits --input x=@seven.png --top-k 3

  servegate route set digits 1=90 2=10
""",
)
app.command("up", cls=Grouped)(up.up)
app.command("proxy", cls=Grouped)(up.proxy)
app.command("control", cls=Grouped)(up.control)
app.command("doctor")(doctor.doctor)
app.command("infer")(infer.infer)
app.command("compare")(compare.compare)
app.command("sync")(sync.sync)
app.command("export")(route_files.export)
app.command("apply")(route_files.apply)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.add_typer(models.app, name="model")
app.add_typer(labels.app, name="label")
add_group(app, "conversion.cli.convert", "convert")
add_group(app, "loadtest.cli.group", "load")
add_group(app, "evaluation.cli.group", "eval")
app.add_typer(batching.app, name="batching")
app.add_typer(hints.app, name="hints")
app.add_typer(routes.app, name="route")
app.add_typer(replicas.app, name="replica")
app.add_typer(keys.app, name="key")
app.add_typer(history.app, name="history")
app.add_typer(config.app, name="config")


@app.callback(invoke_without_command=True)
def root(
    version: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    """Nothing but the version: every verb is a command of its own."""
    if version:
        print(f"servegate {serve.__version__}")
        raise typer.Exit


def main(words: Sequence[str] | None = None) -> None:
    """Run the command, with the process's own arguments unless others are given.

    An error of ours is told in sentences, never as a traceback; `SystemExit` has the status.
    """
    try:
        _require_own_package()
        app(words, prog_name="servegate")
    except* ServegateError as errors:
        sys.exit(_tell(errors))
    except* (OSError, MemoryError) as errors:
        first: BaseException = errors
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        complain(
            ServegateError(
                "the operating system returned an error", why=str(first) or "out of memory"
            )
        )
        sys.exit(1)


def _tell(errors: BaseExceptionGroup[ServegateError]) -> int:
    code = 1
    for error in errors.exceptions:
        if isinstance(error, ServegateError):
            complain(error)
            code = exit_code(error)
        else:
            code = _tell(error)
    return code


def _require_own_package() -> None:
    """`serve` is a common name: a file of that name beside the caller must not be taken for us."""
    if Path(__file__).parent.parent != Path(serve.__file__).parent:
        raise CannotStart(
            "another Python module named 'serve' hides Servegate",
            why=f"Python imported {serve.__file__}",
            try_this="run servegate from another folder, or rename that file",
        )
