"""The canonical configuration: what an uploaded config.pbtxt may say, and its one spelling.

Every field of Triton's `ModelConfig` has a place in one of two tables: what only describes a model
is allowed; what chooses files outside the upload, or reaches into the server, is refused. A field
that is in neither table, because a newer protobuf brings it, is refused as well. `name` and
`version_policy` are dropped: Servegate decides both. Paths that a configuration may hold (label
files, model files, samples) name files of the upload and cannot lead out of it: Triton 2.51 follows
`../` in `label_filename` and `default_model_filename` to wherever that leads.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.triton.config import Configuration, of_message, parse

# Message types without the package `inference.`, and their allowed fields.
ALLOWED = {
    "ModelConfig": "platform backend max_batch_size input output batch_input batch_output "
    "optimization dynamic_batching sequence_batching ensemble_scheduling instance_group "
    "default_model_filename cc_model_filenames metric_tags parameters model_warmup "
    "model_operations model_transaction_policy model_repository_agents response_cache "
    "model_metrics",
    "ModelInput": "name data_type format dims reshape is_shape_tensor allow_ragged_batch optional "
    "is_non_linear_format_io",
    "ModelOutput": "name data_type dims reshape label_filename is_shape_tensor "
    "is_non_linear_format_io",
    "ModelTensorReshape": "shape",
    "BatchInput": "kind target_name data_type source_input",
    "BatchOutput": "target_name kind source_input",
    "ModelOptimizationPolicy": "graph priority cuda execution_accelerators input_pinned_memory "
    "output_pinned_memory gather_kernel_buffer_threshold eager_batching",
    "ModelOptimizationPolicy.Graph": "level",
    "ModelOptimizationPolicy.Cuda": "graphs busy_wait_events graph_spec output_copy_stream",
    "ModelOptimizationPolicy.Cuda.GraphSpec": "batch_size input graph_lower_bound",
    "ModelOptimizationPolicy.Cuda.GraphSpec.Shape": "dim",
    "ModelOptimizationPolicy.Cuda.GraphSpec.LowerBound": "batch_size input",
    "ModelOptimizationPolicy.ExecutionAccelerators": "gpu_execution_accelerator "
    "cpu_execution_accelerator",
    "ModelOptimizationPolicy.ExecutionAccelerators.Accelerator": "name parameters",
    "ModelOptimizationPolicy.PinnedMemoryBuffer": "enable",
    "ModelDynamicBatching": "preferred_batch_size max_queue_delay_microseconds preserve_ordering "
    "priority_levels default_priority_level default_queue_policy priority_queue_policy",
    "ModelQueuePolicy": "timeout_action default_timeout_microseconds allow_timeout_override "
    "max_queue_size",
    "ModelSequenceBatching": "direct oldest max_sequence_idle_microseconds control_input state "
    "iterative_sequence",
    "ModelSequenceBatching.StrategyDirect": "max_queue_delay_microseconds minimum_slot_utilization",
    "ModelSequenceBatching.StrategyOldest": "max_candidate_sequences preferred_batch_size "
    "max_queue_delay_microseconds preserve_ordering",
    "ModelSequenceBatching.ControlInput": "name control",
    "ModelSequenceBatching.Control": "kind int32_false_true fp32_false_true bool_false_true "
    "data_type",
    "ModelSequenceBatching.State": "input_name output_name data_type dims initial_state "
    "use_same_buffer_for_input_output use_growable_memory",
    "ModelSequenceBatching.InitialState": "data_type dims zero_data data_file name",
    "ModelEnsembling": "step max_inflight_requests",
    "ModelEnsembling.Step": "model_name model_version input_map output_map",
    "ModelInstanceGroup": "name kind count rate_limiter gpus secondary_devices profile passive "
    "host_policy",
    "ModelInstanceGroup.SecondaryDevice": "kind device_id",
    "ModelRateLimiter": "resources priority",
    "ModelRateLimiter.Resource": "name global count",
    "ModelParameter": "string_value",
    "ModelWarmup": "name batch_size inputs count",
    "ModelWarmup.Input": "data_type dims zero_data random_data input_data_file",
    "ModelOperations": "op_library_filename",
    "ModelTransactionPolicy": "decoupled",
    "ModelRepositoryAgents": "agents",
    "ModelRepositoryAgents.Agent": "name parameters",
    "ModelResponseCache": "enable",
    "ModelMetrics": "metric_control",
    "ModelMetrics.MetricControl": "metric_identifier histogram_options",
    "ModelMetrics.MetricControl.MetricIdentifier": "family",
    "ModelMetrics.MetricControl.HistogramOptions": "buckets",
}
REFUSED = {
    "ModelConfig.runtime": "it selects the library that Triton loads for a backend",
    "ModelEnsembling.Step.model_namespace": "the Tritons run without namespaces",
}
DROPPED = frozenset({"ModelConfig.name", "ModelConfig.version_policy"})
_ALLOWED = {kind: frozenset(fields.split()) for kind, fields in ALLOWED.items()}
_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")  # as in core.versions
_FILES = frozenset(  # fields that name a file of the upload
    {
        "ModelConfig.default_model_filename",
        "ModelConfig.cc_model_filenames",
        "ModelOutput.label_filename",
        "ModelWarmup.Input.input_data_file",
        "ModelSequenceBatching.InitialState.data_file",
    }
)


def canonical(text: str) -> Configuration:
    """Read config.pbtxt without `name` and `version_policy`; `Invalid` names what is refused."""
    return canonical_of(parse(text))


def canonical_of(configuration: Configuration) -> Configuration:
    """The same, of a configuration that is read already, such as one whose steps were pinned."""
    message = model_config_pb2.ModelConfig()
    message.CopyFrom(configuration.message)
    message.ClearField("name")
    message.ClearField("version_policy")
    for place, field, value in _walk(message, ""):
        _check(place, field, value)
    return of_message(message)


def check_files(configuration: Configuration) -> None:
    """`Invalid` names a path in the configuration that leads out of the model's folder."""
    for place, field, value in _walk(configuration.message, ""):
        _check_file(place, field, value)


def canonical_text(configuration: Configuration) -> str:
    """The one spelling: fields by number, map entries by key, no comments; ends with a newline."""
    return str(text_format.MessageToString(configuration.message))


def _check(place: str, field: str, value: Any) -> None:
    kind, _, name = field.rpartition(".")
    if field in REFUSED or name not in _ALLOWED.get(kind, ()):
        why = REFUSED.get(field, "it is not on Servegate's list of safe fields")
        raise Invalid(f"config.pbtxt may not set '{place}'", why=why, try_this="remove it")
    _check_file(place, field, value)


def _check_file(place: str, field: str, value: Any) -> None:
    if field in _FILES:
        for path in value.values() if hasattr(value, "values") else (value,):
            if not all(_PART.match(part) for part in path.split("/")):
                raise Invalid(
                    f"'{path[:200]}' in '{place}' cannot be the path of a file of this model",
                    why="each part may contain letters, digits, '.', '_' and '-', and must not "
                    "start with '.' or '-'",
                )


def _walk(message: Message, place: str) -> Iterator[tuple[str, str, Any]]:
    """All set fields, the outer ones first: where it is (`input.dims`), what it is, the value."""
    kind = message.DESCRIPTOR.full_name.removeprefix("inference.")
    for field, value in message.ListFields():
        here = f"{place}.{field.name}".lstrip(".")
        yield here, f"{kind}.{field.name}", value
        inner: Iterable[Any] = ()
        if isinstance(value, Message):
            inner = (value,)
        elif field.message_type is not None:  # several of them, in a row or in a map
            is_map = field.message_type.GetOptions().map_entry
            inner = value.values() if is_map else value
        for each in inner:
            if isinstance(each, Message):
                yield from _walk(each, here)
