"""Scanning a SavedModel: what a signature reaches, what a load runs, and what is wrong with it."""

import time
from pathlib import Path

import pytest
from refusals import refusal

from serve.core.errors import ConversionFailed
from serve.wire.protobuf import field, number
from serve.workbench.conversion.sources import Operator, check_source, faults_of, scan

from .archives import tenths
from .graphs import (
    BFLOAT16,
    DEFAULT,
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


def names(folder: Path) -> dict[str, Operator]:
    return {each.name: each for each in scan(folder, DEFAULT)}


def codes(folder: Path, known: set[str] | None = None) -> list[str]:
    return [fault.code for fault in faults_of(scan(folder, DEFAULT), known=known)]


def refused(folder: Path) -> ConversionFailed:
    return refusal(ConversionFailed, check_source, folder)


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


def printing(target: str) -> bytes:
    return node("p", "PrintV2", "x", attributes={"output_stream": text(2, target)})


CAST = node("c", "Cast", "x", attributes={"SrcT": data_type(BFLOAT16), "T": data_type(FLOAT)})
FOLDED = [
    node("weights", "ReadVariableOp", "w"),
    node("folded", "Log1p", "weights:value:0"),
    node("unneeded", "Svd", "x"),
    node("y", "Mul", "folded:y:0", "x"),
]
SWITCH = node("k", "PlaceholderWithDefault")
DRAWN = [node("shape", "Const"), node("r", "RandomUniform", "shape"), node("y", "Relu", "x")]
FAULTS: dict[str, tuple[list[bytes], str, str]] = {  # nodes, the answer, and the only fault
    "printing into a file": ([printing("file:///tmp/x")], "x", "dangerous_operator"),
    "printing": ([printing("stderr")], "x", ""),
    "what is constant or needed by nothing": (FOLDED, "y:z:0", ""),
    "an operator that no converter knows": (FOLDED, "unneeded:s:0", "unsupported_operator"),
    "dropout that a default may switch off": ([SWITCH, node("r", "RandomUniform", "k")], "r:0", ""),
    "a shuffle": ([SWITCH, node("r", "RandomShuffle", "k")], "r:0", "not_deterministic"),
    "random numbers that nobody needs": (DRAWN, "y:0", ""),
    "random numbers": (DRAWN, "r:0", "not_deterministic"),
    "computing in bfloat16": (
        [CAST, node("m", "MatMul", "c", "c", attributes={"T": data_type(BFLOAT16)})],
        "m:0",
        "unsupported_datatype",
    ),
    "casting from bfloat16": ([CAST], "c:0", ""),
}


@pytest.mark.parametrize(("nodes", "answer", "fault"), FAULTS.values(), ids=FAULTS)
def test_each_fault_is_told_and_what_only_looks_like_it_is_not(
    nodes: list[bytes], answer: str, fault: str, tmp_path: Path
) -> None:
    known = {"Mul", "Relu", "MatMul", "Cast"}
    assert codes(calling(tmp_path, nodes, answer), known) == ([fault] if fault else [])


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
    fault = refused(loading(tmp_path / "m", [node("w", "WriteFile", "a", "a")], name=name))
    assert (fault.code, fault.operator, fault.node) == ("dangerous_operator", "WriteFile", "w")


def test_a_load_may_restore_and_fill_tables_from_assets(tmp_path: Path) -> None:
    nodes = [
        node("r", "RestoreV2", "a", "a"),
        node("t", "InitializeTableFromTextFileV2", "table", "asset_argument"),
    ]
    check_source(loading(tmp_path / "m", nodes))


def test_a_table_is_not_filled_from_any_file(tmp_path: Path) -> None:
    nodes = [node("c", "Const"), node("t", "InitializeTableFromTextFileV2", "table", "c:output:0")]
    assert refused(loading(tmp_path / "m", nodes)).code == "dangerous_operator"


def test_the_initializer_of_old_models_is_run_by_a_load(tmp_path: Path) -> None:
    main = [node("x", "Placeholder"), node("init", "NoOp", "^w"), node("w", "WriteFile", "x", "x")]
    signatures = {DEFAULT: signature("x:0"), "__saved_model_init_op": signature("init")}
    assert refused(saved(tmp_path / "m", meta_graph(main, (), signatures))).operator == "WriteFile"
    listed = field(4, entry("legacy_init_op", field(1, text(1, "init"))))
    meta = meta_graph(main, (), {DEFAULT: signature("x:0")}, rest=listed)
    assert refused(saved(tmp_path / "n", meta)).operator == "WriteFile"


def test_an_asset_outside_of_the_folder_is_refused(tmp_path: Path) -> None:
    for name in ("../../secret", "/etc/passwd", "a/../../b", ""):
        asset = field(6, field(1, text(1, "x:0")) + text(2, name))
        meta = meta_graph([node("x", "Placeholder")], (), {DEFAULT: signature("x:0")}, rest=asset)
        assert refused(saved(tmp_path, meta)).code == "archive_unsafe", name


# --- damage --------------------------------------------------------------------------------------


def test_a_graph_cut_off_anywhere_ends_in_a_fault(tmp_path: Path) -> None:
    nodes = [node("y", "Relu", "x"), node("z", "Mul", "y", "x")]
    folder = calling(tmp_path / "m", nodes, "z:0")
    for path in tenths(folder / "saved_model.pb"):
        assert refused(path.parent).code == "source_corrupt"


def test_functions_that_are_not_there_are_no_end(tmp_path: Path) -> None:
    assert "While" in names(calling(tmp_path / "m", [node("l", "While", "x", calls=["gone"])], "l"))


def test_attributes_nested_too_deep_are_refused(tmp_path: Path) -> None:
    attribute = data_type(FLOAT)
    for _ in range(200):
        attribute = field(10, text(1, "f") + field(2, entry("a", attribute)))
    folder = calling(tmp_path / "m", [node("y", "Relu", "x", attributes={"a": attribute})], "y:0")
    fault = refusal(ConversionFailed, scan, folder, DEFAULT)
    assert fault.code == "source_corrupt" and "nested" in fault.why


def test_a_number_where_a_part_should_be_is_damage(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(number(2, 7))
    assert refused(tmp_path).code == "source_corrupt"


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
    assert refused(folder).code == "source_corrupt"
    (folder / "variables").mkdir()
    (folder / "variables" / "variables.index").write_bytes(b"i")
    check_source(folder)


def test_a_graph_without_signature_or_tag_is_refused(tmp_path: Path) -> None:
    assert refused(saved(tmp_path / "m", meta_graph([]))).code == "no_signature"
    meta = meta_graph([], (), {DEFAULT: signature("x:0")}, tag="train")
    assert "train" in refused(saved(tmp_path / "n", meta)).why


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
    fault = refusal(ConversionFailed, scan, saved(tmp_path, meta), DEFAULT)
    assert fault.code == "unsupported_input" and "ragged" in str(fault)
