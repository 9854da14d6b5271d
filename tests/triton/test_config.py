"""config.pbtxt: what it says, what a load call carries, its one spelling, what leads outside."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from refusals import refusal
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.core.versions import VersionFile
from serve.triton.canonical import (
    ALLOWED,
    DROPPED,
    REFUSED,
    canonical,
    canonical_of,
    canonical_text,
)
from serve.triton.config import of_message, parse
from serve.triton.foreign_code import code_in

EXAMPLE = (Path(__file__).parents[2] / "model_repo" / "digits" / "config.pbtxt").read_text()
WHOLE = """
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 8 ] } ]
output [
  { name: "p" data_type: TYPE_FP32 dims: [ 10 ] label_filename: "labels.txt" },
  { name: "q" data_type: TYPE_STRING dims: [ 1 ] }
]
instance_group [ { count: 2 kind: KIND_CPU } ]
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
dynamic_batching { max_queue_delay_microseconds: 100 }
"""


def test_the_version_policy_chooses_among_what_exists() -> None:
    for policy, on_disk, versions in (
        ("", (2, 10, 1), (10,)),
        ("latest { }", (1, 2), (2,)),
        ("latest { num_versions: 0 }", (1, 2), (2,)),
        ("latest { num_versions: 2 }", (3, 1, 2), (2, 3)),
        ("latest { num_versions: 9 }", (1, 2), (1, 2)),
        ("all { }", (10, 9), (9, 10)),
        ("specific { versions: [ 3, 1, 7 ] }", (1, 2, 3), (1, 3)),
        ("specific { versions: [ 7 ] }", (1,), ()),
        ("all { }", (), ()),
    ):
        text = f"version_policy {{ {policy} }}" if policy else ""
        assert parse(text).wanted(on_disk) == versions, (policy, on_disk)


def test_the_flavour_is_the_backend_or_the_platform() -> None:
    for text, flavour in (
        ('backend: "onnxruntime"', "onnxruntime"),
        ('platform: "onnxruntime_onnx"', "onnxruntime_onnx"),
        ('platform: "ensemble"', "ensemble"),
        ('platform: "x" backend: "y"', "y"),
        ("", "auto"),
    ):
        assert parse(text).flavour == flavour, text


def test_sequences_parts_and_labels_are_those_that_the_configuration_names() -> None:
    assert parse("sequence_batching { }").batches_sequences
    assert not parse("dynamic_batching { }").batches_sequences
    steps = 'step [ { model_name: "b" }, { model_name: "a" }, { model_name: "b" } ]'
    assert parse(f"ensemble_scheduling {{ {steps} }}").composing_models == ("b", "a", "b")
    assert parse(WHOLE).composing_models == ()
    assert parse(WHOLE).label_files == {"p": "labels.txt"}
    assert parse(EXAMPLE).label_files == {"probabilities": "labels.txt"}


def test_a_load_call_serves_exactly_these_versions_and_changes_nothing_else() -> None:
    text = WHOLE + "version_policy { latest { num_versions: 1 } }"
    configuration = parse(text)
    load = configuration.for_load([3, 1])
    message = json_format.Parse(load, model_config_pb2.ModelConfig())  # as Triton reads it
    assert list(message.version_policy.specific.versions) == [1, 3]
    message.version_policy.CopyFrom(configuration.message.version_policy)
    assert message == configuration.message == parse(text).message
    # it speaks the names of config.pbtxt
    assert json.loads(load)["max_batch_size"] == 8


def test_the_digest_leaves_out_what_a_load_sets_by_itself_and_the_order_of_a_map() -> None:
    entries = [f'parameters {{ key: "{key}" value {{ }} }}\n' for key in "abcdefghijklmnop"]
    assert parse("".join(entries)).digest == parse("".join(reversed(entries))).digest
    for same in (
        WHOLE,
        WHOLE + "version_policy { all { } }",
        WHOLE.replace('name: "m"', ""),
        WHOLE.replace('name: "m"', 'name: "other"'),
        "# a comment\n" + WHOLE.replace("{ max", "{\n  max"),
    ):
        assert parse(same).digest == parse(WHOLE).digest, same


def test_the_digest_changes_with_everything_else() -> None:
    for other in (
        WHOLE.replace("max_batch_size: 8", "max_batch_size: 9"),
        WHOLE.replace("count: 2", "count: 1"),
        WHOLE.replace("dims: [ -1, 8 ]", "dims: [ 8, -1 ]"),
        WHOLE + "model_transaction_policy { decoupled: true }",
    ):
        assert parse(other).digest != parse(WHOLE).digest, other


def test_a_message_of_triton_is_the_same_as_its_text() -> None:
    assert of_message(parse(WHOLE).message) == parse(WHOLE)


def test_what_cannot_be_read_is_told_with_its_line() -> None:
    for text, line, words in (
        ('backend: "x"\nnonsense: 1\n', 2, "nonsense"),
        ('backend: "x\n', 1, "String missing ending quote"),
        ("\n\nmax_batch_size: many", 3, "many"),
        ("max_batch_size: 99999999999", 1, "out of range"),
        ("input [\n  {\n    data_type: TYPE_FP31\n  }\n]", 3, "TYPE_FP31"),
        ('backend: "a"\nbackend: "b"', 2, "multiple"),
        ("dynamic_batching { }\nsequence_batching { }", 2, "sequence_batching"),
        ("input [", 1, ""),
        ("{" * 50_000, 1, ""),
    ):
        error = refusal(Invalid, parse, text)
        assert f"line {line}" in error.why, (text, line)
        assert words in error.why, (text, line)


# --- the canonical configuration ------------------------------------------------------------------


def all_fields(kind: Any, seen: set[str]) -> Iterator[str]:
    """Every field that a configuration can have, as `ModelInput.name`; map entries are none."""
    if kind.full_name in seen:
        return
    seen.add(kind.full_name)
    for field in kind.fields:
        name = f"{kind.full_name.removeprefix('inference.')}.{field.name}"
        if not kind.GetOptions().map_entry:
            yield name
        if field.message_type is not None and name not in DROPPED:
            yield from all_fields(field.message_type, seen)


def test_every_field_of_a_configuration_is_allowed_refused_or_dropped() -> None:
    allowed = {f"{kind}.{name}" for kind, names in ALLOWED.items() for name in names.split()}
    found = set(all_fields(model_config_pb2.ModelConfig.DESCRIPTOR, set()))
    assert found == allowed | REFUSED.keys() | DROPPED
    assert not allowed & (REFUSED.keys() | DROPPED)


def test_name_and_version_policy_are_dropped_and_nothing_else() -> None:
    message = canonical(EXAMPLE).message
    original = parse(EXAMPLE).message
    assert not message.name and not message.HasField("version_policy")
    message.name = original.name
    message.version_policy.CopyFrom(original.version_policy)
    assert message == original
    canonical_of(of_message(original))
    assert original == parse(EXAMPLE).message


def test_equal_configurations_have_one_spelling_that_reads_back_as_the_same() -> None:
    entries = [f'parameters {{ key: "{key}" value {{ string_value: "1" }} }}' for key in "abcdef"]
    texts = ["\n".join(entries), " # a comment\n" + "\n".join(reversed(entries))]
    first, second = (canonical_text(canonical('backend: "x"\n' + text)) for text in texts)
    assert first == second
    assert "#" not in second
    configuration = canonical(EXAMPLE)
    assert canonical(canonical_text(configuration)) == configuration


def test_what_leads_out_of_the_model_is_refused_by_name() -> None:
    for text, words in (
        ('runtime: "libtriton_evil.so"', "'runtime'"),
        ('ensemble_scheduling { step { model_namespace: "n" } }', "step.model_namespace"),
        ('output { label_filename: "../../../etc/passwd" }', "output.label_filename"),
        ('output { label_filename: "/etc/passwd" }', "/etc/passwd"),
        ('default_model_filename: "a/../../b"', "default_model_filename"),
        ('default_model_filename: ".hidden"', ".hidden"),
        ('cc_model_filenames { key: "7.5" value: "../x" }', "cc_model_filenames"),
        ('cc_model_filenames { key: "7.5" value: "/etc/passwd" }', "cc_model_filenames"),
        (
            'model_warmup { inputs { key: "x" value { input_data_file: "../x" } } }',
            "model_warmup.inputs.input_data_file",
        ),
        (
            'sequence_batching { state { initial_state { data_file: "/x" } } }',
            "sequence_batching.state.initial_state.data_file",
        ),
    ):
        error = refusal(Invalid, canonical, text)
        assert words in str(error), text


def code(config: str, *files: str) -> str:
    return code_in(parse(config), [VersionFile(path, 1, "") for path in files])


def accelerated(parameter: str) -> str:
    return (
        "optimization { execution_accelerators { gpu_execution_accelerator { "
        f'name: "tensorrt" parameters {{ key: "{parameter}" value: "x" }} }} }} }}'
    )


def test_code_in_a_version_is_named() -> None:
    for config, files, words in (
        ('backend: "python"', (), "'python'"),
        ('backend: "vllm"', (), "'vllm'"),
        ('backend: "mine"', (), "'mine'"),
        ('platform: "pytorch_libtorch"', (), "'pytorch_libtorch'"),
        ("", ("1/model.py",), "1/model.py"),
        ("", ("libtriton_x.so",), "libtriton_x.so"),
        ("", ("1/lib/libx.so.1.2",), "libx.so.1.2"),
        ("", ("1/Model.PKL",), "Model.PKL"),
        ("", ("1/model.pt",), "model.pt"),
        ("", ("environment.tar.gz",), "environment.tar.gz"),
        ('model_operations { op_library_filename: "x" }', (), "library"),
        ('model_repository_agents { agents { name: "checksum" } }', (), "agents"),
        ('parameters { key: "EXECUTION_ENV_PATH" value { } }', (), "EXECUTION_ENV_PATH"),
        ('parameters { key: "plugin_dir" value { string_value: "x" } }', (), "plugin_dir"),
        ('parameters { key: "x" value { string_value: "/usr/lib/x" } }', (), "parameters 'x'"),
        ('parameters { key: "x" value { string_value: "$$TRITON_MODEL_DIRECTORY" } }', (), "path"),
        (accelerated("trt_engine_cache_path"), (), "trt_engine_cache_path"),
        (accelerated("trt_extra_plugin_lib_paths"), (), "trt_extra_plugin_lib_paths"),
    ):
        assert words in code(config, *files), (config, files)


def test_data_is_no_code() -> None:
    for config, files in (
        (EXAMPLE, ("1/model.onnx", "labels.txt")),
        ('backend: "tensorrt"', ("1/model.plan",)),
        ('platform: "ensemble"', ("1/ensemble.txt",)),
        ("", ("1/model.onnx", "1/weights.bin", "warmup/x.raw", "model_card.json")),
        (
            'parameters { key: "memory.enable_memory_arena_shrinkage" '
            'value { string_value: "cpu:0;gpu:0" } }',
            (),
        ),
    ):
        assert code(config, *files) == "", config
