"""Revised configurations: what people change of how a version is run; its files stay as they are.

A revision names whole fields of config.pbtxt: what it says takes the place of what a version came
with, and null removes it. What a model takes, gives and is made of cannot be changed so.
"""

from collections.abc import Mapping
from typing import Any

from google.protobuf import json_format
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.triton.config import Configuration, of_message

FIELDS = (
    "max_batch_size",
    "dynamic_batching",
    "sequence_batching",
    "instance_group",
    "response_cache",
    "model_warmup",
)
_CHOICE = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")  # at most one of them


def revised(base: Configuration, fields: Mapping[str, Any]) -> Configuration:
    """The configuration with these fields; `Invalid` names what cannot be set, or cannot be read.

    Fields are in the JSON form of `ModelConfig`, with the names of config.pbtxt.
    """
    strange = sorted(fields.keys() - set(FIELDS))
    if strange:
        raise Invalid(
            f"{', '.join(strange)} cannot be changed",
            why=f"a serving configuration has only {', '.join(FIELDS)}",
            try_this="push a version whose config.pbtxt sets it",
        )
    page = json_format.MessageToDict(base.message, preserving_proto_field_name=True)
    page = {name: value for name, value in page.items() if name not in fields}
    page |= {name: value for name, value in fields.items() if value is not None}
    both = [name for name in _CHOICE if name in page]
    if len(both) > 1:
        raise Invalid(
            f"{both[0]} and {both[1]} exclude each other",
            why="a model has one scheduler",
            try_this=f"remove one of them: --field {both[0]}=null",
        )
    message = model_config_pb2.ModelConfig()
    try:
        json_format.ParseDict(page, message)
    except (json_format.ParseError, RecursionError) as error:
        raise Invalid("the configuration cannot be read", why=str(error)) from error
    return of_message(message)


def fields_of(configuration: Configuration) -> dict[str, Any]:
    """What a configuration says of the fields that a revision may change, in their JSON form."""
    page = json_format.MessageToDict(configuration.message, preserving_proto_field_name=True)
    return {name: page[name] for name in FIELDS if name in page}


def is_in_force(own: Configuration, found: Configuration) -> bool:
    """Whether a Triton that tells `found` runs what `own` says of these fields.

    Triton 2.51 completes them: preferred batch sizes, the idle time of sequences, and names, counts
    and kinds of instances. A group of instances that it made by itself bears the model's name.
    """
    said, told = fields_of(own), fields_of(found)
    groups, made = said.pop("instance_group", []), told.pop("instance_group", [])
    if not groups:
        has_groups = all(group.get("name") == found.message.name for group in made)
    else:
        has_groups = len(groups) == len(made) and all(
            group.items() <= done.items() for group, done in zip(groups, made, strict=True)
        )
    return has_groups and _completed(said, own) == _completed(told, own)


def _completed(fields: Mapping[str, Any], own: Configuration) -> dict[str, Any]:
    """Fields as Triton completes them."""
    whole = {"preferred_batch_size": [own.message.max_batch_size]}
    done = dict(fields)
    if "dynamic_batching" in done:
        done["dynamic_batching"] = {**whole, **done["dynamic_batching"]}
    if "sequence_batching" in done:
        batching = {"max_sequence_idle_microseconds": "1000000", **done["sequence_batching"]}
        if "oldest" in batching:
            batching["oldest"] = {**whole, **batching["oldest"]}
        done["sequence_batching"] = batching
    return done
