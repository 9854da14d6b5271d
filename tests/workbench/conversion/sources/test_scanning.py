"""Scanning a SavedModel: what a signature reaches, what a load runs, and what is wrong with it."""

import time
from pathlib import Path

import pytest

from serve.core.errors import ConversionFailed
from serve.wire.protobuf import field, number
from serve.workbench.conversion.sources import Operator, check_source, faults_of, scan

from .graphs import (
    BFLOAT16,
    FLOAT,
    calling,
    data_type,
    entry,
    function,
    loading,
    meta_graph,
    node,
    saved,
    signature,
    text,
)

DEFAULT = "serving_default"


def names(folder: Path) -> dict[str, Operator]:
    return {each.name: each for each in scan(folder, DEFAULT)}


def codes(folder: Path, known: set[str] | None = None) -> list[str]:
    return [fault.code for fault in faults_of(scan(folder, DEFAULT), known=known)]


def refusal(folder: Path) -> ConversionFailed:
    with pytest.raises(ConversionFailed) as told:
        check_source(folder)
    return told.value


def test_a_signature_reaches_its_function_and_those_that_it_calls(tmp_path: Path) -> None:
    inner = function("g", [node("deep", "Svd", "a")], "deep:s:0")
    nodes = [node("loop", "While", "x", calls=["g", "g"]), node("y", "Relu", "loop:output:0")]
    found = names(calling(tmp_path / "m", nodes, "y:activations:0", more=[inner]))
    assert found["Svd"] == Operator("Svd", 1, ("deep",))
    assert found["Relu"].nodes == ("y",)
    assert "StatefulPartitionedCall" not in found


def test_what_another_signature_or_saving_does_is_not_reached(tmp_path: Path) -> None:
    main = [
        node("x", "Placeholder"),
        node("call", "PartitionedCall", "x", calls=["f"]),
        node("save", "SaveV2", "x"),
        node("other", "PartitionedCall", "x", calls=["reads"]),
    ]
    functions = [
        function("f", [node("y", "Relu", "a")], "y:0"),
        function("reads", [node("r", "ReadFile", "a")], "r:0"),
    ]
    signatures = {DEFAULT: signature("call:0"), "other": signature("other:0")}
    folder = saved(tmp_path / "m", meta_graph(main, functions, signatures))
    assert set(names(folder)) == {"Placeholder", "Relu"}
    assert {each.name for each in scan(folder, "other")} == {"Placeholder", "ReadFile"}
    check_source(folder)


def test_a_function_that_calls_itself_is_read_once(tmp_path: Path) -> None:
    nodes = [node("again", "PartitionedCall", "a", calls=["f", "f"]), node("y", "Relu", "again")]
    assert names(calling(tmp_path / "m", nodes, "y:0"))["Relu"].count == 1


def test_a_node_whose_operator_is_a_functions_name_calls_it(tmp_path: Path) -> None:
    inner = function("Innocent", [node("w", "WriteFile", "a", "a")])
    folder = calling(tmp_path / "m", [node("y", "Innocent", "a")], "y:0", more=[inner])
    assert codes(folder) == ["dangerous_operator"]


def test_a_node_that_only_has_effects_counts_as_dangerous(tmp_path: Path) -> None:
    nodes = [node("y", "Relu", "x", "^w"), node("w", "WriteFile", "c", "c"), node("c", "Const")]
    folder = calling(tmp_path / "m", nodes, "y:0")
    assert names(folder)["WriteFile"].vanishing == 1
    (fault,) = faults_of(scan(folder, DEFAULT), known=None)
    assert (fault.code, fault.operator, fault.node) == ("dangerous_operator", "WriteFile", "w")


def test_printing_into_a_file_is_dangerous_and_printing_is_not(tmp_path: Path) -> None:
    def printing(target: str) -> bytes:
        return node("p", "PrintV2", "x", attributes={"output_stream": text(2, target)})

    assert codes(calling(tmp_path / "a", [printing("file:///tmp/x")])) == ["dangerous_operator"]
    assert codes(calling(tmp_path / "b", [printing("stderr")]), set()) == []


def test_what_is_constant_or_needed_by_nothing_asks_no_converter(tmp_path: Path) -> None:
    nodes = [
        node("weights", "ReadVariableOp", "w"),
        node("folded", "Log1p", "weights:value:0"),
        node("unneeded", "Svd", "x"),
        node("y", "Mul", "folded:y:0", "x"),
    ]
    folder = calling(tmp_path / "m", nodes, "y:z:0")
    assert codes(folder, {"Mul"}) == []
    assert codes(calling(tmp_path / "n", nodes, "unneeded:s:0"), {"Mul"}) == [
        "unsupported_operator"
    ]


def test_dropout_that_a_default_may_switch_off_is_left_to_the_questions(tmp_path: Path) -> None:
    nodes = [node("k", "PlaceholderWithDefault"), node("r", "RandomUniform", "k")]
    assert codes(calling(tmp_path / "one", nodes, "r:0"), {"Relu"}) == []
    nodes = [node("k", "PlaceholderWithDefault"), node("r", "RandomShuffle", "k")]
    assert codes(calling(tmp_path / "two", nodes, "r:0"), {"Relu"}) == ["not_deterministic"]


def test_random_numbers_that_nobody_needs_do_no_harm(tmp_path: Path) -> None:
    nodes = [node("shape", "Const"), node("r", "RandomUniform", "shape"), node("y", "Relu", "x")]
    assert codes(calling(tmp_path / "m", nodes, "y:0"), {"Relu"}) == []
    assert codes(calling(tmp_path / "n", nodes, "r:0"), {"Relu"}) == ["not_deterministic"]


def test_computing_in_bfloat16_is_told_and_casting_from_it_is_not(tmp_path: Path) -> None:
    strange = {"T": data_type(BFLOAT16)}
    cast = node("c", "Cast", "x", attributes={"SrcT": data_type(BFLOAT16), "T": data_type(FLOAT)})
    product = node("m", "MatMul", "c", "c", attributes=strange)
    assert codes(calling(tmp_path / "m", [cast, product], "m:0"), {"MatMul", "Cast"}) == [
        "unsupported_datatype"
    ]
    assert codes(calling(tmp_path / "n", [cast], "c:0"), {"Cast"}) == []


def test_all_faults_are_told_the_worst_first(tmp_path: Path) -> None:
    kinds = ["Svd", "RandomUniform", "PyFunc", "ReadFile"]
    nodes = [node(kind, kind, "x") for kind in kinds]
    folder = calling(tmp_path / "m", nodes, *(f"{kind}:0" for kind in kinds))
    assert codes(folder, set()) == [
        "dangerous_operator",
        "python_operator",
        "not_deterministic",
        "unsupported_operator",
    ]


# --- what a load runs ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["_initialize", "_create_resource", "_destroy_resource"])
def test_what_a_load_runs_is_refused_before_it_is_loaded(name: str, tmp_path: Path) -> None:
    fault = refusal(loading(tmp_path / "m", [node("w", "WriteFile", "a", "a")], name=name))
    assert (fault.code, fault.operator, fault.node) == ("dangerous_operator", "WriteFile", "w")


def test_a_load_may_restore_and_fill_tables_from_assets(tmp_path: Path) -> None:
    nodes = [
        node("r", "RestoreV2", "a", "a"),
        node("t", "InitializeTableFromTextFileV2", "table", "asset_argument"),
    ]
    check_source(loading(tmp_path / "m", nodes))


def test_a_table_is_not_filled_from_any_file(tmp_path: Path) -> None:
    nodes = [node("c", "Const"), node("t", "InitializeTableFromTextFileV2", "table", "c:output:0")]
    assert refusal(loading(tmp_path / "m", nodes)).code == "dangerous_operator"


def test_the_initializer_of_old_models_is_run_by_a_load(tmp_path: Path) -> None:
    main = [node("x", "Placeholder"), node("init", "NoOp", "^w"), node("w", "WriteFile", "x", "x")]
    signatures = {DEFAULT: signature("x:0"), "__saved_model_init_op": signature("init")}
    assert refusal(saved(tmp_path / "m", meta_graph(main, (), signatures))).operator == "WriteFile"
    listed = field(4, entry("legacy_init_op", field(1, text(1, "init"))))
    meta = meta_graph(main, (), {DEFAULT: signature("x:0")}, rest=listed)
    assert refusal(saved(tmp_path / "n", meta)).operator == "WriteFile"


@pytest.mark.parametrize("name", ["../../secret", "/etc/passwd", "a/../../b", ""])
def test_an_asset_outside_of_the_folder_is_refused(name: str, tmp_path: Path) -> None:
    asset = field(6, field(1, text(1, "x:0")) + text(2, name))
    meta = meta_graph([node("x", "Placeholder")], (), {DEFAULT: signature("x:0")}, rest=asset)
    assert refusal(saved(tmp_path / "m", meta)).code == "archive_unsafe"


# --- damage --------------------------------------------------------------------------------------


def test_a_graph_cut_off_anywhere_ends_in_a_fault(tmp_path: Path) -> None:
    nodes = [node("y", "Relu", "x"), node("z", "Mul", "y", "x")]
    folder = calling(tmp_path / "m", nodes, "z:0")
    whole = (folder / "saved_model.pb").read_bytes()
    for tenth in range(10):
        (folder / "saved_model.pb").write_bytes(whole[: len(whole) * tenth // 10])
        assert refusal(folder).code == "source_corrupt", tenth


def test_functions_that_are_not_there_are_no_end(tmp_path: Path) -> None:
    assert "While" in names(calling(tmp_path / "m", [node("l", "While", "x", calls=["gone"])], "l"))


def test_attributes_nested_too_deep_are_refused(tmp_path: Path) -> None:
    attribute = data_type(FLOAT)
    for _ in range(200):
        attribute = field(10, text(1, "f") + field(2, entry("a", attribute)))
    folder = calling(tmp_path / "m", [node("y", "Relu", "x", attributes={"a": attribute})], "y:0")
    with pytest.raises(ConversionFailed, match="nested") as told:
        scan(folder, DEFAULT)
    assert told.value.code == "source_corrupt"


def test_a_number_where_a_part_should_be_is_damage(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(number(2, 7))
    assert refusal(tmp_path).code == "source_corrupt"


def test_a_chain_of_functions_is_followed_in_linear_time(tmp_path: Path) -> None:
    chain = [
        function(f"g{n}", [node("n", "PartitionedCall", "a", calls=[f"g{n + 1}"] * 3)], "n:0")
        for n in range(2000)
    ]
    first = node("y", "PartitionedCall", "x", calls=["g0"])
    folder = calling(tmp_path / "m", [first], "y:0", more=chain)
    begun = time.monotonic()
    scan(folder, DEFAULT)
    assert time.monotonic() - begun < 5


def test_weights_that_are_not_there_are_missed(tmp_path: Path) -> None:
    main = [node("x", "Placeholder"), node("w", "VarHandleOp")]
    folder = saved(tmp_path / "m", meta_graph(main, (), {DEFAULT: signature("x:0")}))
    assert refusal(folder).code == "source_corrupt"
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"i")
    check_source(folder)


def test_a_graph_without_signature_or_tag_is_refused(tmp_path: Path) -> None:
    assert refusal(saved(tmp_path / "m", meta_graph([]))).code == "no_signature"
    meta = meta_graph([], (), {DEFAULT: signature("x:0")}, tag="train")
    assert "train" in refusal(saved(tmp_path / "n", meta)).why


def test_a_ragged_input_is_no_plain_tensor(tmp_path: Path) -> None:
    spec = field(34, number(1, 3))
    taken = field(52, field(1, field(52, field(1, spec))))
    objects = field(7, field(2, entry("f", field(3, taken))))
    main = [node("x", "Placeholder"), node("call", "PartitionedCall", "x", calls=["wrapper"])]
    functions = [
        function("wrapper", [node("c", "PartitionedCall", "a", calls=["f"])], "c:0"),
        function("f", [node("y", "Relu", "a")], "y:0"),
    ]
    meta = meta_graph(main, functions, {DEFAULT: signature("call:0")}, rest=objects)
    with pytest.raises(ConversionFailed, match="ragged") as told:
        scan(saved(tmp_path / "m", meta), DEFAULT)
    assert told.value.code == "unsupported_input"
