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
from serve.app.metrics import families
from serve.app.worker import ProxyWorker
from serve.cli.main import app
from serve.cli.output import EXIT_CODES
from serve.core import errors
from serve.settings import PREFIX, Settings
from serve.triton.lint import RULES
from serve.wire.status import code_name, grpc_code, http_status
from serve.workbench.conversion.faults import FAULTS

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "reference"
_EXITS = {
    1: "Any other error, such as a failed conversion; or `doctor`, `model lint` or `batching lint` "
    "found an error.",
    2: "An option, a file or a request is not valid.",
    3: "The object does not exist.",
    4: "The API key is missing or not valid, or its role does not permit the operation.",
    5: "The operation conflicts with the current state.",
    6: "The gateway is temporarily unavailable, for example because no replica is ready; or Triton "
    "is not installed.",
    7: "A check failed: lint or quarantine of a push, the verification of a conversion, `--slo`, "
    "`--gate`, …",
    8: "The call's deadline has passed.",
}
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
        f"| `{row.name}` | `{PREFIX}{row.name.upper()}` | {_shown(row.default)} "
        f"| {row.metadata['text']} |"
        for row in dataclasses.fields(Settings)
    ]
    return "\n".join(
        (
            "# Settings",
            NOTE,
            "A flag overrides an environment variable, which overrides `servegate.toml` in the",
            "current folder, which overrides the default. `servegate config explain` shows the",
            "source of each value. Times are in seconds, sizes in bytes.",
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
    rows = [f"| {code} | {_EXITS[code]} |" for code in sorted({code for _, code in EXIT_CODES})]
    parts += ["## Exit codes", "", "| code | meaning |", "|---|---|", "| 0 | Success. |", *rows]
    parts += ["| 130 | Interrupted. |", ""]
    return "\n".join(parts)


async def metrics() -> str:
    """Every metric of a worker and of the control plane."""
    with tempfile.TemporaryDirectory() as folder:
        given = Settings(state=folder, triton=("one=127.0.0.1:1:2:3",), model_repo="")
        sources = (
            ("worker", ProxyWorker(given, 0, secret="-").registry.collect()),
            ("control", ControlPlane(given).registry.collect()),
            ("metrics endpoint, for each process", families({})),
            ("processes with TLS", tls.families()),
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
            "Scrape `/metrics` on port 8002, which returns the sum over all workers. Scrape a",
            "separate control plane at `/metrics` on its admin port (8080). Gauges and process",
            "metrics have the label `source`: the process that reported them. Metrics of calls",
            "have the labels `model`, `version`, `route` (why the version was chosen: `number`,",
            "`label:…`, `match`, `sticky`, `split`, `sequence`, `latest`, `fallback`) and",
            "`protocol`.",
            "",
            "| metric | type | meaning | exported by |",
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
            "Errors raised by the gateway carry their code in the header `servegate-error`",
            "(in gRPC: trailing metadata). An error without this header comes from Triton.",
            "",
            "| code | HTTP | gRPC | meaning |",
            "|---|---|---|---|",
            *(row for _, row in sorted(rows)),
            "",
            "## Conversions",
            "",
            "A failed conversion has one of these codes. A command exits with status 7 for the",
            "codes with `yes` in the last column (the converted model failed verification), and",
            "with status 1 for all others.",
            "",
            "| code | what failed | what to try | verification |",
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
            "`servegate model lint PATH` and every push apply these rules. A version with an error",
            'is not published; a warning is recorded with the version. The text after "Triton:" is',
            "the error message with which Triton refuses to load the model.",
            "",
            "| rule | severity | finding | what Triton 2.51 does |",
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
        if not child.hidden:
            yield from _walk(child, (*path, name))


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"  # as in TOML
    text = ",".join(value) if isinstance(value, tuple) else str(value)
    return f"`{text}`" if text else "empty"


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
