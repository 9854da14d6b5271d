"""Writes the reference pages from the code: settings, commands, metrics, errors, lint rules.

Run it with `make docs`; a test fails while a page differs from what this would write.
"""

import asyncio
import dataclasses
import inspect
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import typer

from serve.app import tls
from serve.app.control import ControlPlane
from serve.app.usage import families
from serve.app.worker import Worker
from serve.cli.main import app
from serve.cli.output import EXIT_CODES
from serve.conversion.faults import FAULTS
from serve.core import errors
from serve.settings import PREFIX, Settings
from serve.triton.lint import RULES
from serve.wire.status import code_name, grpc_code, http_status

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
NOTE = "<!-- Written by `make docs` from the code; edit the code instead. -->\n"


def pages() -> dict[str, str]:
    """Every page by its file name."""
    return {
        "settings.md": settings(),
        "commands.md": commands(),
        "metrics.md": asyncio.run(metrics()),
        "errors.md": error_codes(),
        "lint.md": lint_rules(),
    }


def settings() -> str:
    """A row per setting."""
    rows = [
        f"| `{row.name}` | `{PREFIX}{row.name.upper()}` | `{_shown(row.default)}` "
        f"| {row.metadata['text']} |"
        for row in dataclasses.fields(Settings)
    ]
    return "\n".join(
        (
            "# Settings",
            NOTE,
            "A flag wins over the environment, the environment over `servegate.toml` in the",
            "present folder, and that over the default. `servegate config explain` shows where",
            "each value comes from. Times are in seconds, sizes in bytes.",
            "",
            "| `servegate.toml` | environment | default | meaning |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )


def commands() -> str:
    """The help of every command."""
    parts = ["# Commands", NOTE]
    root = typer.main.get_command(app)
    for path, command in _walk(root, ("servegate",)):
        context = click.Context(command, info_name=" ".join(path), terminal_width=96)
        context.max_content_width = 96
        parts += [f"## {' '.join(path)}", "", "```", command.get_help(context).rstrip(), "```", ""]
    rows = [f"| {code} | {kind.__doc__} |" for kind, code in EXIT_CODES if kind.__doc__]
    parts += ["## Exit codes", "", "| code | when |", "|---|---|", "| 0 | Success. |", *rows]
    parts += ["| 130 | Interrupted. |", ""]
    return "\n".join(parts)


async def metrics() -> str:
    """Every metric of a worker and of the control plane."""
    with tempfile.TemporaryDirectory() as folder:
        given = Settings(state=folder, triton=("one=127.0.0.1:1:2:3",), model_repo="")
        sources = (
            ("worker", Worker(given, 0, secret="-").registry.collect()),
            ("control", ControlPlane(given).registry.collect()),
            ("metrics port", families({})),
            ("who listens with TLS", tls.families()),
        )
        rows = []
        for source, found in sources:
            for family in found:
                name = family.name + ("_total" if family.type == "counter" else "")
                text = family.documentation
                rows.append((name, f"| `{name}` | {family.type} | {text} | {source} |"))
    own = dict(sorted(rows))
    return "\n".join(
        (
            "# Metrics",
            NOTE,
            "Prometheus reads them from port 8002 (`/metrics`), where the numbers of all workers",
            "are added up; gauges, and what a process uses, carry the label `source`. Labels of",
            "calls: `model`, `version`,",
            "`route` (why that version: `number`, `label:…`, `split`, `sequence`, `latest`),",
            "`protocol`.",
            "",
            "| metric | type | meaning | counted by |",
            "|---|---|---|---|",
            *own.values(),
            "",
        )
    )


def error_codes() -> str:
    """Every error of the tree with its statuses."""
    rows = []
    for name in sorted(vars(errors)):
        kind = getattr(errors, name)
        if isinstance(kind, type) and issubclass(kind, errors.ServegateError):
            sample = kind.__new__(kind)
            code = code_name("grpc", grpc_code(sample))
            text = (kind.__doc__ or "").split("\n")[0]
            rows.append((kind.code, f"| `{kind.code}` | {http_status(sample)} | {code} | {text} |"))
    return "\n".join(
        (
            "# Errors",
            NOTE,
            "The gateway's own errors say their code in the header (or trailing metadata)",
            "`servegate-error`; an error without it is Triton's own.",
            "",
            "| code | HTTP | gRPC | when |",
            "|---|---|---|---|",
            *(row for _, row in sorted(rows)),
            "",
            "## Conversions",
            "",
            "A conversion that fails says one of these. Those of the gate end a command with",
            "status 7, the others with 1.",
            "",
            "| code | what has happened | what to try | gate |",
            "|---|---|---|---|",
            *(
                f"| `{fault.code}` | {fault.what} | {fault.hint} | {'yes' * fault.is_gate} |"
                for fault in FAULTS.values()
            ),
            "",
        )
    )


def lint_rules() -> str:
    """A row per rule, with what Triton does."""
    rows = []
    for rule in RULES:
        meaning, _, rest = inspect.cleandoc(rule.check.__doc__ or "").partition("\n\n")
        triton = " ".join(rest.split()).replace("|", "\\|")
        rows.append(f"| `{rule.name}` | {rule.severity.value} | {meaning} | {triton} |")
    return "\n".join(
        (
            "# Lint rules",
            NOTE,
            "`servegate model lint PATH` and every push look for these. An error keeps a version",
            "from being published; a warning is recorded with it.",
            "",
            "| rule | severity | what it finds | what Triton 2.51 does, and more |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    )


def _walk(
    command: click.Command, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    for name, child in getattr(command, "commands", {}).items():
        yield from _walk(child, (*path, name))


def _shown(value: object) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def main() -> int:
    """Write the pages; with `--check` only say which differ."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    differing = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != text
    ]
    if "--check" in sys.argv:
        print("\n".join(differing))
        return 1 if differing else 0
    for name in differing:
        (FOLDER / name).write_text(pages()[name], "utf-8")
        print(f"wrote docs/reference/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
