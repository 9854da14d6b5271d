"""What an ONNX file declares: its inputs and outputs, held against a Triton configuration.

    complete   writes into a configuration what it leaves out
    check      says on which tensor a configuration and the file disagree

Both follow NVIDIA's C++ backend, down to its rule for dimensions: an input of the configuration may
narrow a free dimension of the file, an output may not.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime as ort

Config = Mapping[str, Any]  # a model configuration, as Triton writes it in JSON


class LoadError(ValueError):
    """The model cannot be loaded as it is configured."""


TENSOR = re.compile(r"tensor\((bool|string|u?int(?:8|16|32|64)|b?float16|float|double)\)")
SHORT_TYPES = {"float16": "FP16", "bfloat16": "BF16", "float": "FP32", "double": "FP64"}


@dataclass(frozen=True, slots=True)
class OnnxTensor:
    """An input or output of the model file; `dims` has -1 where any size fits."""

    name: str
    data_type: str
    dims: tuple[int, ...]
    shown: str  # with the file's own words for free dimensions: TYPE_FP32 [batch,8]

    @classmethod
    def read(cls, role: str, node: Any) -> "OnnxTensor":
        element = TENSOR.fullmatch(node.type)
        if element is None:
            raise LoadError(
                f"{role} '{node.name}' is a {node.type}, which is not a data type of Triton"
            )
        data_type = f"TYPE_{SHORT_TYPES.get(element[1], element[1].upper())}"
        dims = tuple(dim if isinstance(dim, int) else -1 for dim in node.shape)
        words = ("?" if dim is None else str(dim) for dim in node.shape)
        return cls(node.name, data_type, dims, f"{data_type} [{','.join(words)}]")


@dataclass(frozen=True, slots=True)
class OnnxSignature:
    inputs: Mapping[str, OnnxTensor]
    defaulted: Mapping[
        str, OnnxTensor
    ]  # inputs that have a value in the file: they may be left out
    outputs: Mapping[str, OnnxTensor]

    @classmethod
    def read(cls, session: ort.InferenceSession) -> "OnnxSignature":
        def by_name(role: str, nodes: Iterable[Any]) -> Mapping[str, OnnxTensor]:
            return {node.name: OnnxTensor.read(role, node) for node in nodes}

        return cls(
            by_name("input", session.get_inputs()),
            by_name("input", session.get_overridable_initializers()),
            by_name("output", session.get_outputs()),
        )

    def unbatched(self) -> tuple[str, OnnxTensor] | None:
        """The first tensor without a free first dimension: because of it the model cannot batch."""
        for role, tensors in (("input", self.inputs), ("output", self.outputs)):
            for tensor in tensors.values():
                if tensor.dims[:1] != (-1,):
                    return role, tensor
        return None


def complete(config: Any, signature: OnnxSignature, default_batch: int) -> None:
    """Fill a `pb_utils.ModelConfig` in; `default_batch` is for a model that can batch."""
    given = config.as_dict()
    obstacle = signature.unbatched()
    if obstacle and given["max_batch_size"] > 0:
        raise cannot_batch(given["max_batch_size"], *obstacle)
    if not obstacle and given["max_batch_size"] == 0:
        config.set_max_batch_size(default_batch)
    batched = given["max_batch_size"] > 0
    if given["max_batch_size"] > 1 and "sequence_batching" not in given:
        config.set_dynamic_batching()
    for key, tensors, add in (
        ("input", signature.inputs, config.add_input),
        ("output", signature.outputs, config.add_output),
    ):
        for tensor in () if given[key] else tensors.values():
            dims = list(tensor.dims[1:] if batched else tensor.dims)
            entry: dict[str, Any] = {
                "name": tensor.name,
                "data_type": tensor.data_type,
                "dims": dims or [1],
            }
            add(entry)
            if batched and not dims:  # Triton wants one dimension besides the batch
                entry["reshape"] = {"shape": []}


def check(config: Config, signature: OnnxSignature) -> None:
    """Raise LoadError for the first thing on which the configuration and the file disagree."""
    refuse_unsupported(config)
    largest = config["max_batch_size"]
    obstacle = signature.unbatched() if largest > 0 else None
    if obstacle:
        raise cannot_batch(largest, *obstacle)
    sequence = config.get("sequence_batching", {})
    controls = {control["name"] for control in sequence.get("control_input", ())}
    configured = {entry["name"]: entry for entry in config["input"]}
    for name in signature.inputs.keys() - configured.keys() - controls:
        shown = signature.inputs[name].shown
        raise LoadError(f"the configuration has no input '{name}', the model file expects {shown}")
    for name in controls - signature.inputs.keys():
        raise LoadError(f"the model file has no input '{name}' for the sequence control")
    for name, entry in configured.items():
        check_entry("input", entry, {**signature.inputs, **signature.defaulted}, largest)
        if name in signature.defaulted and not entry.get("optional"):
            raise LoadError(f"input '{name}' has a default in the model file: make it optional")
        if entry.get("optional") and name not in signature.defaulted:
            raise LoadError(f"input '{name}' is optional, but has no default in the model file")
        if entry.get("optional") and largest > 0:
            raise LoadError(f"input '{name}' is optional: this needs max_batch_size 0")
    for entry in config["output"]:
        check_entry("output", entry, signature.outputs, largest)


def refuse_unsupported(config: Config) -> None:
    used = {
        "batch_input": config.get("batch_input"),
        "batch_output": config.get("batch_output"),
        "allow_ragged_batch": any(entry.get("allow_ragged_batch") for entry in config["input"]),
        "sequence_batching.state": config.get("sequence_batching", {}).get("state"),
        "decoupled": config.get("model_transaction_policy", {}).get("decoupled"),
    }
    for name in used:
        if used[name]:
            raise LoadError(f"'{name}' is not supported by the Python onnxruntime backend")


def check_entry(role: str, entry: Config, declared: Mapping[str, OnnxTensor], largest: int) -> None:
    name = entry["name"]
    tensor = declared.get(name)
    if tensor is None:
        raise LoadError(f"the model file has no {role} '{name}', only {', '.join(declared)}")
    dims = entry["reshape"]["shape"] if "reshape" in entry else entry["dims"]
    full = ([-1] if largest > 0 else []) + [int(dim) for dim in dims]
    if tensor.data_type != entry["data_type"] or not fits(role, full, tensor.dims):
        batch = f" (max_batch_size {largest})" if largest > 0 else ""
        raise LoadError(
            f"{role} '{name}' is {entry['data_type']} [{','.join(map(str, full))}]{batch} in the "
            f"configuration, but {tensor.shown} in the model file"
        )


def fits(role: str, configured: Sequence[int], declared: Sequence[int]) -> bool:
    """The C++ backend's rule: an input may narrow a free dimension down, an output may not."""
    if not declared:  # a scalar, or a tensor of unknown rank: ONNX Runtime does not tell them apart
        return all(dim == 1 for dim in configured)
    if role == "output":
        return list(configured) == list(declared)
    return len(configured) == len(declared) and all(
        wanted in (-1, size) for size, wanted in zip(configured, declared, strict=True)
    )


def cannot_batch(largest: int, role: str, tensor: OnnxTensor) -> LoadError:
    return LoadError(
        f"max_batch_size is {largest}, but {role} '{tensor.name}' is {tensor.shown} in the model "
        "file: set max_batch_size to 0, or export the model with a free first dimension"
    )
