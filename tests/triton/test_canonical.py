"""The canonical configuration: one spelling, no names or policies, and no way out of the folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
from serve.triton.config import parse
from serve.triton.foreign_code import code_in

EXAMPLE = (Path(__file__).parents[2] / "model_repo" / "digits" / "config.pbtxt").read_text()


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


def test_canonicalising_leaves_the_configuration_it_is_given_as_it_is() -> None:
    configuration = parse(EXAMPLE)
    canonical_of(configuration)
    assert configuration == parse(EXAMPLE)


def test_equal_configurations_have_one_spelling() -> None:
    entries = [f'parameters {{ key: "{key}" value {{ string_value: "1" }} }}' for key in "abcdef"]
    texts = ["\n".join(entries), " # a comment\n" + "\n".join(reversed(entries))]
    first, second = (canonical_text(canonical('backend: "x"\n' + text)) for text in texts)
    assert first == second
    assert "#" not in second


def test_the_spelling_reads_back_as_the_same_configuration() -> None:
    configuration = canonical(EXAMPLE)
    again = canonical(canonical_text(configuration))
    assert again == configuration
    assert canonical_text(again) == canonical_text(configuration)


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
            'model_warmup { inputs { key: "x" '
            'value { input_data_file: "../../../../etc/passwd" } } }',
            "model_warmup.inputs.input_data_file",
        ),
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
        (
            "optimization { execution_accelerators { gpu_execution_accelerator { "
            'name: "tensorrt" parameters { key: "trt_engine_cache_path" value: "cache" } } } }',
            (),
            "trt_engine_cache_path",
        ),
        (
            "optimization { execution_accelerators { gpu_execution_accelerator { "
            'name: "tensorrt" parameters { key: "trt_extra_plugin_lib_paths" value: "x" } } } }',
            (),
            "trt_extra_plugin_lib_paths",
        ),
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
