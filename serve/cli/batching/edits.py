"""Edits: what the flags of `servegate batching set` and `lint` make of a serving configuration.

A file and `--reset` come first, then the flags in the order of `triton/edits/table.py`, then
`--field`. What comes out are whole fields; only those are sent that differ from what the version
came with.
"""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from serve.cli.batching.fields import put_field
from serve.cli.panels import option
from serve.core.errors import Invalid
from serve.triton.edits.table import EDITS, OF_DYNAMIC, Fields, to_send
from serve.triton.edits.warmup_samples import set_warmup

if TYPE_CHECKING:
    from serve.triton.config import Configuration


BATCHING, QUEUE, EXECUTION = "Batching", "Queue and priorities", "Execution"  # groups in the help
SEQUENCES, OTHER = "Sequences", "Other fields"


@dataclass(frozen=True, slots=True)
class Edits:
    """What was said; None and empty stand for nothing. The annotations are the options."""

    largest: Annotated[
        int | None,
        option(
            BATCHING,
            "N",
            "Maximum batch size in rows; 0 disables batching.",
            "--max-batch-size",
            min=0,
        ),
    ] = None
    dynamic: Annotated[
        bool | None, option(BATCHING, "", "Enable or disable dynamic batching.", "--on/--off")
    ] = None
    delay: Annotated[
        str | None,
        option(
            BATCHING,
            "DURATION",
            "Maximum queue delay: how long a call may wait for a batch, for example 500us or 2ms.",
            "--delay",
        ),
    ] = None
    preferred: Annotated[
        str | None,
        option(
            BATCHING,
            "N,…",
            "Preferred batch sizes, for example 8,16; 'none' removes them.",
            "--preferred",
        ),
    ] = None
    ordering: Annotated[
        bool | None,
        option(
            BATCHING,
            "",
            "Return responses in the order in which the calls arrived.",
            "--preserve-ordering/--no-preserve-ordering",
        ),
    ] = None
    levels: Annotated[
        int | None,
        option(
            QUEUE,
            "N",
            "Number of priority levels; 0 for no priorities.",
            "--priority-levels",
            min=0,
        ),
    ] = None
    default_level: Annotated[
        int | None,
        option(QUEUE, "N", "Priority of calls that do not set one.", "--default-priority", min=1),
    ] = None
    queue: Annotated[
        str | None,
        option(
            QUEUE,
            "size=N,timeout=TIME,action=reject|delay,override=yes|no",
            "Queue policy: size in calls, timeout such as 50ms, action on timeout, and whether a "
            "call may override the timeout. Omitted parts keep their values; 'none' removes the "
            "policy.",
            "--queue",
        ),
    ] = None
    priority_queues: Annotated[
        list[str] | None,
        option(
            QUEUE,
            "LEVEL:size=N,…",
            "Queue policy of one priority level (repeatable).",
            "--priority-queue",
        ),
    ] = None
    instances: Annotated[
        list[str] | None,
        option(
            EXECUTION,
            "[cpu|gpu:]N[@GPU,…]",
            "Instance group, for example gpu:2@0 (repeatable); 'none' restores Triton's default.",
            "--instances",
        ),
    ] = None
    rate_limit: Annotated[
        list[str] | None,
        option(
            EXECUTION,
            "RESOURCE:N[:global]",
            "Rate limiter resource that an instance needs to run (repeatable); 'none' removes "
            "them.",
            "--rate-limit",
        ),
    ] = None
    rate_priority: Annotated[
        int | None,
        option(
            EXECUTION,
            "N",
            "Priority of the instances in the rate limiter.",
            "--rate-priority",
            min=0,
        ),
    ] = None
    cache: Annotated[
        bool | None, option(EXECUTION, "", "Use Triton's response cache.", "--cache/--no-cache")
    ] = None
    warmup: Annotated[
        list[str] | None,
        option(
            EXECUTION,
            "batch=N,data=zero|random,count=N,dims=INPUT:3x224",
            "Warm-up request, sent before the model is ready (repeatable); 'none' removes them.",
            "--warmup",
        ),
    ] = None
    sequence: Annotated[
        str | None,
        option(
            SEQUENCES, "direct|oldest", "Scheduling strategy of the sequence batcher.", "--sequence"
        ),
    ] = None
    sequence_idle: Annotated[
        str | None,
        option(
            SEQUENCES,
            "DURATION",
            "Idle timeout of a sequence, for example 10s.",
            "--sequence-idle",
        ),
    ] = None
    candidates: Annotated[
        int | None,
        option(
            SEQUENCES,
            "N",
            "Maximum number of concurrent sequences (strategy oldest).",
            "--candidates",
            min=1,
        ),
    ] = None
    sequence_delay: Annotated[
        str | None,
        option(
            SEQUENCES,
            "DURATION",
            "Maximum queue delay for calls of a sequence.",
            "--sequence-delay",
        ),
    ] = None
    others: Annotated[
        list[str] | None,
        option(
            OTHER,
            "PATH=VALUE",
            "Any field of config.pbtxt, with a JSON value; null removes it (repeatable).",
            "--field",
        ),
    ] = None
    source: Annotated[
        Path | None,
        option(OTHER, "FILE", "Read the fields from a .json or config.pbtxt file.", "--from"),
    ] = None
    reset: Annotated[
        bool,
        option(OTHER, "", "Restore the configuration that the version was pushed with.", "--reset"),
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
    from serve.triton.config_revisions import FIELDS, fields_of, revised

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
    from serve.triton.config_revisions import FIELDS, fields_of

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
