"""config.pbtxt: what it says about versions, sequences and parts, and what a load call carries."""

import json
from pathlib import Path

from google.protobuf import json_format
from refusals import refusal
from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.triton.config import Configuration, of_message, parse

EXAMPLE = Path(__file__).parents[2] / "model_repo" / "digits" / "config.pbtxt"
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


def wanted(policy: str, *on_disk: int) -> tuple[int, ...]:
    return parse(f"version_policy {{ {policy} }}" if policy else "").wanted(on_disk)


def test_the_configuration_of_the_example_can_be_read() -> None:
    assert parse(EXAMPLE.read_text()).label_files == {"probabilities": "labels.txt"}


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
        assert wanted(policy, *on_disk) == versions, (policy, on_disk)


def test_the_flavour_is_the_backend_or_the_platform() -> None:
    for text, flavour in (
        ('backend: "onnxruntime"', "onnxruntime"),
        ('platform: "onnxruntime_onnx"', "onnxruntime_onnx"),
        ('platform: "ensemble"', "ensemble"),
        ('platform: "x" backend: "y"', "y"),
        ("", "auto"),
    ):
        assert parse(text).flavour == flavour, text


def test_sequences_are_batched_where_the_configuration_says_so() -> None:
    assert parse("sequence_batching { }").batches_sequences
    assert not parse("dynamic_batching { }").batches_sequences
    assert not parse("").batches_sequences


def test_an_ensemble_names_its_parts_in_their_order() -> None:
    steps = 'step [ { model_name: "b" }, { model_name: "a" }, { model_name: "b" } ]'
    assert parse(f"ensemble_scheduling {{ {steps} }}").composing_models == ("b", "a", "b")
    assert parse(WHOLE).composing_models == ()


def test_label_files_belong_to_outputs() -> None:
    assert parse(WHOLE).label_files == {"p": "labels.txt"}


def loaded(configuration: Configuration, *versions: int) -> model_config_pb2.ModelConfig:
    """The configuration that Triton reads out of a load call."""
    return json_format.Parse(configuration.for_load(versions), model_config_pb2.ModelConfig())


def test_a_load_call_serves_exactly_these_versions_and_changes_nothing_else() -> None:
    configuration = parse(WHOLE + "version_policy { latest { num_versions: 1 } }")
    message = loaded(configuration, 3, 1)
    assert list(message.version_policy.specific.versions) == [1, 3]
    message.version_policy.CopyFrom(configuration.message.version_policy)
    assert message == configuration.message


def test_a_load_call_speaks_the_names_of_config_pbtxt() -> None:
    plain = json.loads(parse(WHOLE).for_load([1]))
    assert plain["max_batch_size"] == 8
    assert plain["version_policy"] == {"specific": {"versions": ["1"]}}


def test_making_a_load_call_leaves_the_configuration_as_it_is() -> None:
    configuration = parse(WHOLE)
    configuration.for_load([1])
    assert configuration == parse(WHOLE)


def test_the_digest_leaves_out_what_a_load_sets_by_itself() -> None:
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


def test_the_digest_does_not_depend_on_the_order_of_a_map() -> None:
    entries = [f'parameters {{ key: "{key}" value {{ }} }}\n' for key in "abcdefghijklmnop"]
    assert parse("".join(entries)).digest == parse("".join(reversed(entries))).digest


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
