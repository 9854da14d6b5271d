"""The form *Change the configuration*: its fields, and the configuration that they ask for.

A field that is left as it was shown changes nothing, whatever the configuration says. So nothing is
lost that the form cannot show, and two people who change different fields do not undo each other.
"""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from serve.core.errors import Invalid
from serve.triton.config import Configuration
from serve.triton.config_revisions import FIELDS, fields_of
from serve.triton.edits import values
from serve.triton.edits.table import EDITS, Fields, put_queue, to_send
from serve.triton.edits.warmup_samples import set_warmup

Typed = Mapping[str, str]  # by the names of `CALLED`; "" is what is not set, not ticked, or not 0
CALLED = {
    "largest": "Maximum batch size",
    "dynamic": "Dynamic batching",
    "delay": "Queue delay",
    "preferred": "Preferred batch sizes",
    "queue_size": "Queue size",
    "queue_timeout": "Queue timeout",
    "queue_action": "After the timeout",
    "instances": "Instances",
    "cache": "Response cache",
    "warmup": "Warm-up batch sizes",
    "warmup_data": "Warm-up data",
    "json": "All fields as JSON",
}
_OF_DYNAMIC = ("delay", "preferred", "queue_size", "queue_timeout", "queue_action")
_KINDS = {"KIND_CPU": "cpu:", "KIND_GPU": "gpu:", "KIND_MODEL": "model:"}
_FLAGS = {
    "--max-batch-size": "largest",
    "--delay": "delay",
    "--preferred": "preferred",
    "--instances": "instances",
}
_SWITCHES = {"--on": ("dynamic", "on"), "--no-cache": ("cache", ""), "--cache": ("cache", "on")}
_OF_QUEUE = {"size": "queue_size", "timeout": "queue_timeout", "action": "queue_action"}


def shown(configuration: Configuration) -> dict[str, str]:
    """What the fields show of a configuration."""
    fields = fields_of(configuration)
    batching = fields.get("dynamic_batching", {})
    queue = batching.get("default_queue_policy", {})
    samples = fields.get("model_warmup", [])
    is_random = any("random_data" in str(one.get("inputs", {})) for one in samples)
    return {
        "largest": str(fields.get("max_batch_size", 0)),
        "dynamic": "on" if "dynamic_batching" in fields else "",
        "delay": _time(batching.get("max_queue_delay_microseconds")),
        "preferred": ",".join(map(str, batching.get("preferred_batch_size", []))),
        "queue_size": str(queue.get("max_queue_size", "")),
        "queue_timeout": _time(queue.get("default_timeout_microseconds")),
        "queue_action": str(queue.get("timeout_action", "REJECT")).lower(),
        "instances": " ".join(_group(one) for one in fields.get("instance_group", [])),
        "cache": "on" if fields.get("response_cache", {}).get("enable") else "",
        "warmup": ",".join(str(one.get("batch_size", 1)) for one in samples),
        "warmup_data": "random" if is_random else "zero",
        "json": json.dumps(fields, indent=2),
    }


def typed_of(form: Mapping[str, Any]) -> dict[str, str]:
    """What a form says; browsers send no boxes that are not ticked."""
    return {name: str(form.get(name, "")).replace("\r\n", "\n").strip() for name in CALLED}


def seen_of(form: Mapping[str, Any], now: Typed) -> Typed:
    """What the form had shown; as it is now where it does not say so."""
    try:
        seen = json.loads(str(form.get("seen", "")))
    except (ValueError, RecursionError):
        return now
    if not isinstance(seen, dict):
        return now
    return {name: str(seen.get(name, now[name])) for name in CALLED}


def merged(typed: Typed, seen: Typed, now: Typed) -> dict[str, str]:
    """What was typed, and elsewhere what is so now."""
    return {name: typed[name] if typed[name] != seen[name] else now[name] for name in CALLED}


def wanted(base: Configuration, present: Configuration, typed: Typed, seen: Typed) -> Fields:
    """The fields to send, as `servegate batching set` sends them; `Invalid` for what cannot be."""
    said = {name: typed[name] for name in CALLED if typed[name] != seen[name]}
    _require_sense(typed, said)
    found = _whole(said.pop("json")) if "json" in said else fields_of(present)
    if "largest" in said:
        EDITS["largest"](found, values.whole(said["largest"] or "0", CALLED["largest"], "16"))
    if "dynamic" in said:
        EDITS["dynamic"](found, bool(said["dynamic"]))
    if "delay" in said:
        EDITS["delay"](found, said["delay"] or "0", CALLED["delay"])
    if "preferred" in said:
        EDITS["preferred"](found, said["preferred"] or values.NONE, CALLED["preferred"])
    if said.keys() & set(_OF_QUEUE.values()):
        put_queue(found, _queue(typed, said))
    if "instances" in said:
        EDITS["instances"](found, said["instances"].split() or [values.NONE], CALLED["instances"])
    if "cache" in said:
        EDITS["cache"](found, bool(said["cache"]))
    if said.keys() & {"warmup", "warmup_data"}:
        set_warmup(found, _samples(typed), base, CALLED["warmup"])
    return to_send(base, found)


def filled(command: str) -> dict[str, str]:
    """What a command of advice would type into the form; nothing where it is none that can."""
    try:
        words = shlex.split(command)
    except ValueError:
        return {}
    if words[:3] != ["servegate", "batching", "set"]:
        return {}
    found: dict[str, str] = {}
    rest = iter(words[4:])
    for word in rest:
        if word in _SWITCHES:
            name, value = _SWITCHES[word]
            found[name] = value
        elif word in _FLAGS:
            value = next(rest, "")
            found[_FLAGS[word]] = "" if value in (values.NONE, "0us") else value
        elif word == "--queue":
            pairs = dict(part.partition("=")[::2] for part in next(rest, "").split(","))
            found |= {_OF_QUEUE[name]: value for name, value in pairs.items() if name in _OF_QUEUE}
        else:
            return {}
    return found


def seconds_of(text: str) -> float:
    """How long callers are watched; `Invalid` for what is no number of seconds up to a day."""
    seconds = values.whole(text.strip() or "0", "Monitoring time", "60")
    if seconds > 86400:
        raise Invalid("Monitoring time: the maximum is 86400 seconds (one day)", try_this="3600")
    return float(seconds)


def _require_sense(typed: Typed, said: Typed) -> None:
    """Nothing is turned off and changed at the same time."""
    changed = [CALLED[name] for name in _OF_DYNAMIC if typed[name] and name in said]
    if not typed["dynamic"] and changed:
        raise Invalid(
            f"{', '.join(changed)}: only possible with dynamic batching",
            why=f"'{CALLED['dynamic']}' is not selected",
            try_this="select it, or leave these fields unchanged",
        )


def _queue(typed: Typed, said: Typed) -> Fields | None:
    """What is said of the queue; None where nothing limits it any more."""
    if not typed["queue_size"] and not typed["queue_timeout"]:
        return None
    found: Fields = {}
    if "queue_size" in said:
        size = values.whole(said["queue_size"] or "0", CALLED["queue_size"], "100")
        found["max_queue_size"] = size
    if "queue_timeout" in said:
        timeout = values.microseconds(said["queue_timeout"] or "0", CALLED["queue_timeout"])
        found["default_timeout_microseconds"] = timeout
    if "queue_action" in said:
        found["timeout_action"] = "DELAY" if said["queue_action"] == "delay" else "REJECT"
    return found


def _samples(typed: Typed) -> list[str]:
    sizes = values.sizes(typed["warmup"] or values.NONE, CALLED["warmup"])
    data = "random" if typed["warmup_data"] == "random" else "zero"
    return [f"batch={size},data={data}" for size in sizes] or [values.NONE]


def _whole(text: str) -> Fields:
    """All fields; one that is missing is not set any more."""
    try:
        page = json.loads(text or "{}")
    except (ValueError, RecursionError) as error:
        raise Invalid(f"{CALLED['json']}: not valid JSON", why=str(error)) from error
    if not isinstance(page, dict):
        raise Invalid(f"{CALLED['json']}: expected an object", try_this='{"max_batch_size": 8}')
    strange = sorted(page.keys() - set(FIELDS))
    if strange:
        raise Invalid(
            f"{CALLED['json']}: {', '.join(strange)} cannot be changed",
            why=f"the fields that can be changed are {', '.join(FIELDS)}",
        )
    return page


def _time(microseconds: Any) -> str:
    """`500us`, `2ms`; empty for none."""
    count = int(microseconds or 0)
    if not count:
        return ""
    for factor, unit in ((1_000_000, "s"), (1000, "ms")):
        if count % factor == 0:
            return f"{count // factor}{unit}"
    return f"{count}us"


def _group(group: Mapping[str, Any]) -> str:
    gpus = ",".join(map(str, group.get("gpus", [])))
    text = f"{_KINDS.get(group.get('kind', ''), '')}{group.get('count', 1)}"
    return f"{text}@{gpus}" if gpus else text
