"""Edits: what the flags of `servegate batching set` and `lint` make of a serving configuration.

A file and `--reset` come first, then the flags in the order of `triton/edits/table.py`, then
`--field`. What comes out are whole fields; only those are sent that differ from what the version
came with.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.batching.fields import put_field
from serve.core.errors import Invalid
from serve.triton.edits.samples import set_warmup
from serve.triton.edits.table import EDITS, OF_DYNAMIC, Fields, to_send

if TYPE_CHECKING:
    from serve.triton.config import Configuration


BATCHING, QUEUE, EXECUTION = "Batching", "Queue and priorities", "Execution"  # groups in the help
SEQUENCES, OTHER = "Sequences", "Other fields"


def _option(
    group: str, *names: str, help: str, metavar: str | None = None, least: int | None = None
) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, min=least, rich_help_panel=group)


@dataclass(frozen=True, slots=True)
class Edits:
    """What was said; None and empty stand for nothing. The annotations are the options."""

    largest: Annotated[
        int | None,
        _option(
            BATCHING,
            "--max-batch-size",
            metavar="N",
            least=0,
            help="Largest batch; 0 for no batching.",
        ),
    ] = None
    dynamic: Annotated[
        bool | None, _option(BATCHING, "--on/--off", help="Turn dynamic batching on or off.")
    ] = None
    delay: Annotated[
        str | None,
        _option(
            BATCHING,
            "--delay",
            metavar="DURATION",
            help="Longest time that a call waits for a batch, for example 500us or 2ms.",
        ),
    ] = None
    preferred: Annotated[
        str | None,
        _option(
            BATCHING,
            "--preferred",
            metavar="N,…",
            help="Preferred batch sizes, for example 8,16; none removes them.",
        ),
    ] = None
    ordering: Annotated[
        bool | None,
        _option(
            BATCHING,
            "--preserve-ordering/--no-preserve-ordering",
            help="Return responses in the order of the calls.",
        ),
    ] = None
    levels: Annotated[
        int | None,
        _option(
            QUEUE,
            "--priority-levels",
            metavar="N",
            least=0,
            help="Number of priority levels; 0 for no priorities.",
        ),
    ] = None
    default_level: Annotated[
        int | None,
        _option(
            QUEUE,
            "--default-priority",
            metavar="N",
            least=1,
            help="Priority of calls that do not set one.",
        ),
    ] = None
    queue: Annotated[
        str | None,
        _option(
            QUEUE,
            "--queue",
            metavar="size=N,timeout=TIME,action=reject|delay,override=yes|no",
            help="Queue policy; parts that you leave out stay as they are; none removes it.",
        ),
    ] = None
    priority_queues: Annotated[
        list[str] | None,
        _option(
            QUEUE,
            "--priority-queue",
            metavar="LEVEL:size=N,…",
            help="Queue policy of one priority level (repeatable).",
        ),
    ] = None
    instances: Annotated[
        list[str] | None,
        _option(
            EXECUTION,
            "--instances",
            metavar="[cpu|gpu:]N[@GPU,…]",
            help="Group of instances (repeatable); none uses Triton's default.",
        ),
    ] = None
    rate_limit: Annotated[
        list[str] | None,
        _option(
            EXECUTION,
            "--rate-limit",
            metavar="RESOURCE:N[:global]",
            help="Rate limiter resource that an instance needs to run (repeatable); none removes "
            "them.",
        ),
    ] = None
    rate_priority: Annotated[
        int | None,
        _option(
            EXECUTION,
            "--rate-priority",
            metavar="N",
            least=0,
            help="Priority of the instances in the rate limiter.",
        ),
    ] = None
    cache: Annotated[
        bool | None,
        _option(EXECUTION, "--cache/--no-cache", help="Use Triton's response cache."),
    ] = None
    warmup: Annotated[
        list[str] | None,
        _option(
            EXECUTION,
            "--warmup",
            metavar="batch=N,data=zero|random,count=N,dims=INPUT:3x224",
            help="Warm-up request, sent before the model is ready (repeatable); none removes them.",
        ),
    ] = None
    sequence: Annotated[
        str | None,
        _option(
            SEQUENCES,
            "--sequence",
            metavar="direct|oldest",
            help="Scheduling strategy of the sequence batcher.",
        ),
    ] = None
    sequence_idle: Annotated[
        str | None,
        _option(
            SEQUENCES,
            "--sequence-idle",
            metavar="DURATION",
            help="Time without a call after which a sequence ends, for example 10s.",
        ),
    ] = None
    candidates: Annotated[
        int | None,
        _option(
            SEQUENCES,
            "--candidates",
            metavar="N",
            least=1,
            help="Largest number of concurrent sequences (strategy oldest).",
        ),
    ] = None
    sequence_delay: Annotated[
        str | None,
        _option(
            SEQUENCES,
            "--sequence-delay",
            metavar="DURATION",
            help="Longest time that a call of a sequence waits for a batch.",
        ),
    ] = None
    others: Annotated[
        list[str] | None,
        _option(
            OTHER,
            "--field",
            metavar="PATH=VALUE",
            help="Any field of config.pbtxt, with a JSON value; null removes it (repeatable).",
        ),
    ] = None
    source: Annotated[
        Path | None,
        _option(
            OTHER,
            "--from",
            metavar="FILE",
            help="Read the fields from a .json or config.pbtxt file.",
        ),
    ] = None
    reset: Annotated[
        bool,
        _option(
            OTHER, "--reset", help="Restore the configuration that the version was pushed with."
        ),
    ] = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to be changed."""
        return all(getattr(self, one.name) == one.default for one in fields(self))


def edited(base: "Configuration", present: "Configuration", edits: Edits) -> Fields:
    """The fields to send: those that differ from what the version came with; None removes one.

    `base` is what the version came with, `present` what it is run by now. `Invalid` says what
    cannot be set, and why.
    """
    from serve.triton.revising import FIELDS, fields_of, revised

    _require_sense(edits)
    whole: Fields = dict.fromkeys(FIELDS)
    found = fields_of(base) if edits.reset else fields_of(present)
    if edits.source is not None:
        found = fields_of(revised(base, whole | found | _read(edits.source)))
    for name, edit in EDITS.items():
        said = getattr(edits, name)
        if said is not None:
            edit(found, said)
    if edits.warmup is not None:
        set_warmup(found, edits.warmup, base)
    for text in edits.others or ():
        put_field(found, text)
    return to_send(base, found)


def _require_sense(edits: Edits) -> None:
    """Nothing is turned off and changed at the same time."""
    if edits.dynamic is False and any(getattr(edits, name) is not None for name in OF_DYNAMIC):
        raise Invalid(
            "--off cannot be combined with other options of dynamic batching",
            why="it removes the whole field dynamic_batching",
            try_this="pass --off alone, or leave it out",
        )


def _read(path: Path) -> Fields:
    """What a file says: some fields in JSON, or all of a config.pbtxt."""
    import json

    from serve.triton.config import parse
    from serve.triton.revising import FIELDS, fields_of

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"--from: cannot read '{path}'", why=str(error)) from error
    if path.suffix != ".json":
        return dict.fromkeys(FIELDS) | fields_of(parse(text))
    try:
        page = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"--from: '{path}' is not valid JSON", why=str(error)) from error
    page = page.get("fields", page) if isinstance(page, dict) else page
    if not isinstance(page, dict):
        raise Invalid(
            f"--from: '{path}' is not a JSON object",
            why="expected an object with fields of config.pbtxt",
            try_this='{"max_batch_size": 16, "dynamic_batching": {}}',
        )
    return page
