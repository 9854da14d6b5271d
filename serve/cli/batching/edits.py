"""Edits: what the flags of `servegate batching set` and `lint` make of a serving configuration.

A file and `--reset` come first, then the flags in the order of `triton/edits/table.py`, then
`--field`. What comes out are whole fields; only those are sent that differ from what the version
came with.

`--field PATH=VALUE`: any field of a serving configuration by its path, with a value in JSON.

dynamic_batching.max_queue_delay_microseconds=500
dynamic_batching.priority_queue_policy.2.max_queue_size=10
instance_group[0].kind=KIND_CPU
sequence_batching=null
"""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from serve.cli.panels import option
from serve.core.errors import Invalid
from serve.triton.edits.table import EDITS, OF_DYNAMIC, Fields, to_send
from serve.triton.edits.warmup_samples import set_warmup

if TYPE_CHECKING:
    from serve.triton.config import Configuration


# --- `--field PATH=VALUE` -------------------------------------------------------------------------


_PART = re.compile(r"\[(\d{1,6})\]|\.?([^.\[\]]+)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_EXAMPLE = "--field dynamic_batching.max_queue_delay_microseconds=500"


def put_field(fields: dict[str, Any], text: str) -> None:
    """Set one field within `fields`, or remove it: its value is `null` then."""
    from serve.triton.config_revisions import FIELDS

    path, equals, said = text.partition("=")
    steps = _steps(path)
    if not (equals and steps):
        raise Invalid(
            f"--field: '{text}' is not valid", why="expected PATH=VALUE", try_this=_EXAMPLE
        )
    if steps[0] not in FIELDS:
        raise Invalid(
            f"--field: '{steps[0]}' cannot be changed",
            why=f"the serving configuration has only the fields {', '.join(FIELDS)}",
            try_this=_EXAMPLE,
        )
    value = _value(said, path)
    *outer, last = steps
    inside: Any = fields
    for step in outer:
        inside = _entered(inside, step, path)
    if isinstance(inside, list):
        _put_at(inside, last, value, path)
    elif value is None:
        inside.pop(last, None)
    else:
        inside[last] = value


def _steps(path: str) -> list[str]:
    """The names and numbers of a path; none when it cannot be read."""
    found = list(_PART.finditer(path))
    if "".join(each[0] for each in found) != path:
        return []
    return [each[1] or each[2] for each in found]


def _value(said: str, path: str) -> Any:
    """JSON, or one bare word, as the words of enumerations are."""
    try:
        return json.loads(said)
    except (ValueError, RecursionError) as error:
        if _WORD.match(said):
            return said
        raise Invalid(
            f"--field: the value of '{path}' is not valid JSON", why=str(error), try_this=_EXAMPLE
        ) from error


def _entered(inside: Any, step: str, path: str) -> Any:
    """What lies below; made where there is nothing yet."""
    if isinstance(inside, list):
        at = _index(step, len(inside), path)
        if at == len(inside):
            inside.append({})
        inside = inside[at]
    else:
        empty: Any = [] if step in ("instance_group", "model_warmup", "resources") else {}
        inside = inside.setdefault(step, empty)
    if not isinstance(inside, dict | list):
        raise Invalid(
            f"--field: '{path}' does not exist", why=f"'{step}' is a value without fields"
        )
    return inside


def _put_at(inside: list[Any], step: str, value: Any, path: str) -> None:
    at = _index(step, len(inside), path)
    if value is None:
        del inside[at : at + 1]
    else:
        inside[at : at + 1] = [value]


def _index(step: str, count: int, path: str) -> int:
    """A place in a list, or the one behind its end."""
    if not step.isdigit() or int(step) > count:
        raise Invalid(
            f"--field: there is no '{step}' in '{path}'",
            why=f"expected an index from 0 to {count}",
            try_this="--field instance_group[0].count=2",
        )
    return int(step)


# --- edits ----------------------------------------------------------------------------------------


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
            "Rate limiter resource that an instance needs to run (repeatable); 'none' removes all "
            "resources.",
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
            "Warm-up request, sent before the model is ready (repeatable); 'none' removes all "
            "requests.",
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
