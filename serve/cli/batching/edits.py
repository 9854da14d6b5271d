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


def _option(*names: str, help: str, metavar: str | None = None, least: int | None = None) -> Any:
    return typer.Option(*names, help=help, metavar=metavar, min=least)


@dataclass(frozen=True, slots=True)
class Edits:
    """What was said; None and empty stand for nothing. The annotations are the options."""

    largest: Annotated[
        int | None, _option("--max-batch-size", metavar="N", least=0, help="0: no batches.")
    ] = None
    dynamic: Annotated[
        bool | None, _option("--on/--off", help="Put calls together, or not (no dynamic_batching).")
    ] = None
    delay: Annotated[
        str | None,
        _option("--delay", metavar="TIME", help="A call waits so long for others: 500us."),
    ] = None
    preferred: Annotated[
        str | None, _option("--preferred", metavar="N,…", help="Sizes that end the wait, or none.")
    ] = None
    ordering: Annotated[
        bool | None,
        _option("--preserve-ordering/--no-preserve-ordering", help="Answers in the calls' order."),
    ] = None
    levels: Annotated[
        int | None, _option("--priority-levels", metavar="N", least=0, help="0: no priorities.")
    ] = None
    default_level: Annotated[
        int | None, _option("--default-priority", metavar="N", least=1, help="Of other calls.")
    ] = None
    queue: Annotated[
        str | None,
        _option(
            "--queue",
            metavar="size=N,timeout=TIME,action=reject|delay,override=yes|no",
            help="What is said of the queue, or none; what is not said stays.",
        ),
    ] = None
    priority_queues: Annotated[
        list[str] | None,
        _option(
            "--priority-queue", metavar="N:size=…", help="The same of one priority; repeatable."
        ),
    ] = None
    instances: Annotated[
        list[str] | None,
        _option(
            "--instances",
            metavar="[cpu|gpu:]N[@GPU,…]",
            help="A group of instances, or none for Triton's own; repeatable.",
        ),
    ] = None
    rate_limit: Annotated[
        list[str] | None,
        _option(
            "--rate-limit",
            metavar="RESOURCE:N[:global]",
            help="What an instance needs to run, or none; repeatable.",
        ),
    ] = None
    rate_priority: Annotated[
        int | None, _option("--rate-priority", metavar="N", least=0, help="Of the rate limiter.")
    ] = None
    cache: Annotated[
        bool | None, _option("--cache/--no-cache", help="Triton's response cache.")
    ] = None
    warmup: Annotated[
        list[str] | None,
        _option(
            "--warmup",
            metavar="batch=N,data=zero|random,count=N,dims=INPUT:3x224",
            help="A sample that is sent before the model is ready, or none; repeatable.",
        ),
    ] = None
    sequence: Annotated[
        str | None,
        _option("--sequence", metavar="direct|oldest", help="How sequences share instances."),
    ] = None
    sequence_idle: Annotated[
        str | None,
        _option("--sequence-idle", metavar="TIME", help="A silent sequence is given up then."),
    ] = None
    candidates: Annotated[
        int | None,
        _option("--candidates", metavar="N", least=1, help="With oldest: sequences at a time."),
    ] = None
    sequence_delay: Annotated[
        str | None, _option("--sequence-delay", metavar="TIME", help="As --delay, of sequences.")
    ] = None
    others: Annotated[
        list[str] | None,
        _option("--field", metavar="PATH=VALUE", help="Any field, in JSON; null removes it."),
    ] = None
    source: Annotated[
        Path | None, _option("--from", metavar="FILE", help="A .json of fields, or config.pbtxt.")
    ] = None
    reset: Annotated[bool, _option("--reset", help="Go back to what it came with.")] = False

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
            "--off leaves nothing to be changed of dynamic batching",
            why="it removes the field with all that is said of it",
            try_this="--off alone, or the other flags without it",
        )


def _read(path: Path) -> Fields:
    """What a file says: some fields in JSON, or all of a config.pbtxt."""
    import json

    from serve.triton.config import parse
    from serve.triton.revising import FIELDS, fields_of

    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"--from: '{path}' cannot be read", why=str(error)) from error
    if path.suffix != ".json":
        return dict.fromkeys(FIELDS) | fields_of(parse(text))
    try:
        page = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(f"--from: '{path}' is no JSON", why=str(error)) from error
    page = page.get("fields", page) if isinstance(page, dict) else page
    if not isinstance(page, dict):
        raise Invalid(
            f"--from: '{path}' holds no fields",
            why="an object stands there",
            try_this='{"max_batch_size": 16, "dynamic_batching": {}}',
        )
    return page
