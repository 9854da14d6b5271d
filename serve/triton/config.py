"""config.pbtxt: Triton's model configuration, through protobuf's own text format.

The message definition is the one that tritonclient ships. A configuration leaves here as a frozen
value that answers what the control plane asks: which versions its policy wants, whether it batches
sequences, which models an ensemble is made of, and what a load call must carry.
"""

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid


@dataclass(frozen=True, slots=True)
class Configuration:
    """One model's configuration. `digest` is hexadecimal and leaves `version_policy` out."""

    message: model_config_pb2.ModelConfig
    digest: str

    @property
    def flavour(self) -> str:
        """The runnable form: the backend's name, or `ensemble`."""
        return str(self.message.backend or self.message.platform or "auto")

    @property
    def batches_sequences(self) -> bool:
        """Whether calls of one sequence must reach one replica."""
        return bool(self.message.HasField("sequence_batching"))

    @property
    def composing_models(self) -> tuple[str, ...]:
        """The models an ensemble calls; empty for every other model."""
        if not self.message.HasField("ensemble_scheduling"):
            return ()
        return tuple(step.model_name for step in self.message.ensemble_scheduling.step)

    @property
    def label_files(self) -> dict[str, str]:
        """Output names and the file, relative to the model's folder, with a label per line."""
        return {
            item.name: item.label_filename for item in self.message.output if item.label_filename
        }

    def wanted(self, on_disk: Iterable[int]) -> tuple[int, ...]:
        """The versions that the version policy serves, of those that exist; ascending."""
        versions = sorted(on_disk)
        policy = self.message.version_policy
        if policy.HasField("all"):
            return tuple(versions)
        if policy.HasField("specific"):
            asked = set(policy.specific.versions)
            return tuple(version for version in versions if version in asked)
        newest = policy.latest.num_versions if policy.HasField("latest") else 1
        return tuple(versions[-(newest or 1) :])

    def for_load(self, versions: Iterable[int]) -> str:
        """The JSON of a load call that serves exactly these versions and changes nothing else."""
        message = model_config_pb2.ModelConfig()
        message.CopyFrom(self.message)
        message.version_policy.specific.versions[:] = sorted(versions)
        return json.dumps(json_format.MessageToDict(message, preserving_proto_field_name=True))


def parse(text: str) -> Configuration:
    """Read config.pbtxt; an unknown field or a broken line is `Invalid` and names the line."""
    message = model_config_pb2.ModelConfig()
    try:
        text_format.Parse(text, message)
    except text_format.ParseError as error:
        raise Invalid("config.pbtxt cannot be read", why=_explain(error, text)) from error
    return of_message(message)


def of_json(text: str) -> Configuration:
    """Read the JSON form of a configuration, as load calls carry it; `Invalid` says what is wrong.

    A load call's configuration stands for all of config.pbtxt: what it leaves out is not set.
    """
    message = model_config_pb2.ModelConfig()
    try:
        json_format.Parse(text, message)
    except (json_format.ParseError, RecursionError) as error:
        why = str(error).partition("\n")[0]  # without the list of all fields
        raise Invalid("the configuration cannot be read", why=why) from error
    if not text.lstrip().startswith("{"):  # protobuf takes an empty list for an object
        raise Invalid("the configuration cannot be read", why="it is not a JSON object")
    return of_message(message)


def of_message(message: model_config_pb2.ModelConfig) -> Configuration:
    """A configuration from a message, as Triton's ModelConfig call gives it."""
    plain = model_config_pb2.ModelConfig()
    plain.CopyFrom(message)
    plain.ClearField("version_policy")
    plain.ClearField("name")
    digest = hashlib.sha256(plain.SerializeToString(deterministic=True)).hexdigest()
    return Configuration(message, digest)


def _explain(error: text_format.ParseError, text: str) -> str:
    line = error.GetLine()
    reason = re.sub(r"^\d+:\d+ : ", "", str(error)).replace("inference.ModelConfig", "ModelConfig")
    if line is None:
        return reason
    lines = text.splitlines()
    shown = lines[line - 1].strip()[:80] if 0 < line <= len(lines) else ""
    return (
        f"line {line}: {reason} in '{shown}'" if shown not in reason else f"line {line}: {reason}"
    )
