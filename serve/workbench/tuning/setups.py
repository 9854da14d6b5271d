"""Setups and ModelConfig: what a configuration decides about capacity, and the fields that say it.

| of a setup     | in config.pbtxt                                                                |
|----------------|--------------------------------------------------------------------------------|
| max_batch_size | `max_batch_size`                                                               |
| batches        | whether there is `dynamic_batching`                                            |
| delay          | `dynamic_batching.max_queue_delay_microseconds`                                |
| preferred      | `dynamic_batching.preferred_batch_size`; all of the batch is the same as none  |
| instances      | `instance_group`: the counts of all groups, once for each of their GPUs        |

Everything else that `dynamic_batching` says (priorities, queue policies, order) stays as it is.
Configurations are in the JSON form of `ModelConfig`, with the names of config.pbtxt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2

from serve.capacity.setup import BatchSetup
from serve.core.errors import Invalid
from serve.triton.config import parse

Config = Mapping[str, Any]
_PREFERRED, _DELAY = "preferred_batch_size", "max_queue_delay_microseconds"


def setup_of(config: Config) -> BatchSetup:
    """What a configuration decides, as Triton tells it or as it is loaded."""
    most = int(config.get("max_batch_size") or 0)
    batching = config.get("dynamic_batching")
    said = batching or {}
    preferred = tuple(sorted(int(size) for size in said.get(_PREFERRED) or ()))
    return BatchSetup(
        most,
        instances=sum(map(_instances, config.get("instance_group") or ())) or 1,
        batches=batching is not None and most > 0,
        delay=int(said.get(_DELAY) or 0) / 1e6,
        preferred=() if preferred == (most,) else preferred,
    )


def fields_of_setup(setup: BatchSetup, present: Config, fields: Config) -> dict[str, Any]:
    """The revised fields that bring a setup about, where `present` is in force with `fields`.

    Only what has to differ is added to them.
    """
    found, now = dict(fields), setup_of(present)
    if setup.max_batch_size != now.max_batch_size:
        found["max_batch_size"] = setup.max_batch_size
    if (setup.batches, setup.delay, setup.preferred) != (now.batches, now.delay, now.preferred):
        found["dynamic_batching"] = _batching(setup, present)
    elif setup.batches and setup.max_batch_size != now.max_batch_size:
        found["dynamic_batching"] = _batching(setup, present)  # preferred sizes may be too large
    if setup.instances != now.instances:
        found["instance_group"] = _group(setup.instances, present)
    return found


def json_of(text: str) -> dict[str, Any]:
    """A config.pbtxt in the JSON form of `ModelConfig`."""
    found: dict[str, Any] = json_format.MessageToDict(
        parse(text).message, preserving_proto_field_name=True
    )
    return found


def normal(config: Config) -> dict[str, Any]:
    """What a Triton tells of its configuration, without the fields that say nothing."""
    message = model_config_pb2.ModelConfig()
    json_format.ParseDict(dict(config), message, ignore_unknown_fields=True)
    found: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return found


def flags_of_setup(setup: BatchSetup, present: Config) -> tuple[str, ...]:
    """The same change as options of `servegate batching set`."""
    now, words = setup_of(present), list[str]()
    if setup.max_batch_size != now.max_batch_size:
        words += ["--max-batch-size", str(setup.max_batch_size)]
    if setup.batches != now.batches:
        words.append("--on" if setup.batches else "--off")
    if setup.batches and setup.delay != now.delay:
        words += ["--delay", f"{round(setup.delay * 1e6)}us"]
    told = (present.get("dynamic_batching") or {}).get(_PREFERRED)
    if setup.batches and (setup.preferred != now.preferred or (told and not setup.preferred)):
        words += ["--preferred", ",".join(map(str, setup.preferred)) or "none"]
    if setup.instances != now.instances:
        words += ["--instances", str(_group(setup.instances, present)[0]["count"])]
    return tuple(words)


def tunable(model: str, config: Config) -> None:
    """`Invalid` says why a model's batching cannot be tuned."""
    why = ""
    if config.get("sequence_batching") is not None:
        why = "calls of a sequence depend on each other, but the tuning sends independent calls"
    elif config.get("ensemble_scheduling") is not None:
        why = "Triton batches the parts of an ensemble, not the ensemble itself"
    elif (config.get("model_transaction_policy") or {}).get("decoupled"):
        why = (
            "the model is decoupled: a call has any number of responses, so its duration is "
            "undefined"
        )
    if why:
        tried = "tune its parts; servegate batching show lists the time that each one takes"
        raise Invalid(
            f"model '{model}' cannot be tuned",
            why=why,
            try_this=tried if "parts" in why else "set it manually with servegate batching set",
        )


def _instances(group: Config) -> int:
    return int(group.get("count") or 1) * max(1, len(group.get("gpus") or ()))


def _batching(setup: BatchSetup, present: Config) -> dict[str, Any] | None:
    if not setup.batches:
        return None
    kept = {
        name: value
        for name, value in (present.get("dynamic_batching") or {}).items()
        if name not in (_PREFERRED, _DELAY)
    }
    if setup.preferred:
        kept[_PREFERRED] = list(setup.preferred)
    if setup.delay:
        kept[_DELAY] = round(setup.delay * 1e6)
    return kept


def _group(instances: int, present: Config) -> list[dict[str, Any]]:
    """One group as the first of the present, with a count that makes so many instances."""
    groups: Sequence[Config] = present.get("instance_group") or ()
    first = dict(groups[0]) if groups else {}
    first.pop("name", None)
    gpus = max(1, len(first.get("gpus") or ()))
    return [first | {"count": max(1, round(instances / gpus))}]
