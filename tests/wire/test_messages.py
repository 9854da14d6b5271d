"""Protobuf messages by tables: read and written as Google's library reads and writes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from refusals import refusal
from tritonclient.grpc import service_pb2 as pb

from serve.core.errors import Unparsable
from serve.wire import statistics_grpc
from serve.wire.messages import MessageField, ScalarKind, read, write
from serve.wire.statistics_grpc import INDEX, STATISTICS, answer, asked_about, entries, question

COUNT = some.integers(0, 2**64 - 1)
DURATION = some.builds(pb.StatisticDuration, count=COUNT, ns=COUNT)
BATCH = some.builds(pb.InferBatchStatistics, batch_size=COUNT, compute_infer=DURATION)
MEMORY = some.builds(
    pb.MemoryUsage, type=some.text(), id=some.integers(-(2**63), 2**63 - 1), byte_size=COUNT
)
STATED = some.builds(
    pb.ModelStatistics,
    name=some.text(),
    version=some.text(),
    last_inference=COUNT,
    inference_count=COUNT,
    inference_stats=some.builds(pb.InferStatistics, success=DURATION, cache_miss=DURATION),
    batch_stats=some.lists(BATCH, max_size=2),
    memory_usage=some.lists(MEMORY, max_size=2),
)
INDEXED = some.builds(
    pb.RepositoryIndexResponse.ModelIndex,
    name=some.text(),
    version=some.text(),
    state=some.text(),
    reason=some.text(),
)


@given(some.lists(STATED, max_size=3))
def test_statistics_are_read_and_written_as_they_were(models: list[Any]) -> None:
    said = pb.ModelStatisticsResponse(model_stats=models).SerializeToString()
    assert answer(STATISTICS, entries(STATISTICS, said)) == said


@given(some.lists(INDEXED, max_size=3))
def test_an_index_is_read_and_written_as_it_was(models: list[Any]) -> None:
    said = pb.RepositoryIndexResponse(models=models).SerializeToString()
    assert answer(INDEX, entries(INDEX, said)) == said


def test_the_words_are_those_of_tritons_json() -> None:
    model = pb.ModelStatistics(name="m", version="1", inference_count=3)
    model.inference_stats.success.count = 2
    model.response_stats["0"].empty_response.ns = 5
    model.batch_stats.add(batch_size=4).compute_infer.count = 1
    model.memory_usage.add(type="GPU", id=-1, byte_size=7)
    said = pb.ModelStatisticsResponse(model_stats=[model]).SerializeToString()
    assert entries(STATISTICS, said) == [
        {
            "name": "m",
            "version": "1",
            "inference_count": 3,
            "inference_stats": {"success": {"count": 2}},
            "response_stats": {"0": {"empty_response": {"ns": 5}}},
            "batch_stats": [{"batch_size": 4, "compute_infer": {"count": 1}}],
            "memory_usage": [{"type": "GPU", "id": -1, "byte_size": 7}],
        }
    ]
    assert answer(STATISTICS, entries(STATISTICS, said)) == said


def test_every_field_of_tritons_statistics_is_in_the_tables() -> None:
    """One that is missing would be lost when answers are merged."""

    def names(descriptor: Any) -> dict[str, Any]:
        found = {}
        for one in descriptor.fields:
            nested = one.message_type
            if nested is not None and nested.GetOptions().map_entry:
                nested = nested.fields_by_name["value"].message_type
            found[one.name] = None if nested is None else names(nested)
        return found

    def tabled(table: Any) -> dict[str, Any]:
        return {
            one.name: None if isinstance(one.kind, ScalarKind) else tabled(one.kind)
            for one in table.values()
        }

    assert tabled(statistics_grpc.MODEL) == names(pb.ModelStatistics.DESCRIPTOR)
    assert tabled(statistics_grpc.INDEXED) == names(
        pb.RepositoryIndexResponse.ModelIndex.DESCRIPTOR
    )


def test_a_question_names_a_model_and_a_version() -> None:
    for model, version in (("", ""), ("m", ""), ("größe", "2"), ("m", "label")):
        asked = pb.ModelStatisticsRequest(name=model, version=version)
        assert question(model, version) == asked.SerializeToString(), model
        assert asked_about(asked.SerializeToString()) == (model, version), model


def test_metadata_get_another_name_and_the_versions_of_the_fleet() -> None:
    said = pb.ModelMetadataResponse(name="m--0a1b2c3d", versions=["2"], platform="python")
    said.inputs.add(name="x", datatype="FP32", shape=[-1, 2])
    said.outputs.add(name="y", datatype="FP32", shape=[-1])
    for fleet, versions in (((1, 2, 10), ["1", "2", "10"]), ((), ["2"])):
        wanted = pb.ModelMetadataResponse()
        wanted.CopyFrom(said)
        wanted.name, wanted.versions[:] = "m", versions
        named = statistics_grpc.metadata(said.SerializeToString(), "m", fleet)
        assert named == wanted.SerializeToString(), fleet


def test_a_message_given_twice_is_merged_and_a_number_given_twice_is_the_later_one() -> None:
    first, second = pb.StatisticDuration(count=1, ns=2), pb.StatisticDuration(count=3)
    table = {
        1: MessageField(
            "it",
            {1: MessageField("count", ScalarKind.NUMBER), 2: MessageField("ns", ScalarKind.NUMBER)},
        )
    }
    twice = b"".join(pb.InferStatistics(success=one).SerializeToString() for one in (first, second))
    assert read(table, twice) == {"it": {"count": 3, "ns": 2}}


def test_what_a_table_does_not_know_or_knows_as_another_kind_is_dropped() -> None:
    said = pb.ModelStatisticsRequest(name="m", version="1").SerializeToString()
    assert read({2: MessageField("version", ScalarKind.TEXT)}, said) == {"version": "1"}
    assert read({1: MessageField("name", ScalarKind.TEXT)}, b"\x08\x05") == {}
    assert read({1: MessageField("count", ScalarKind.NUMBER)}, b"\x0a\x01x") == {}


def test_a_message_without_fields_is_written_where_a_number_of_zero_is_not() -> None:
    table = {
        1: MessageField("inner", {1: MessageField("count", ScalarKind.NUMBER)}),
        2: MessageField("truth", ScalarKind.TRUTH),
    }
    assert write(table, {"inner": {"count": 0}, "truth": False}) == b"\x0a\x00"
    assert write(table, {"truth": True}) == b"\x10\x01"


def test_nonsense_is_refused() -> None:
    table = {1: MessageField("name", ScalarKind.TEXT)}
    for message in (b"\xff\xff\xff", b"\x0a\x05x", b"\x00\x00", b"\x0a\x01\xff"):
        error = refusal(Unparsable, read, table, message)
        assert "Unable to parse request" in str(error), message


def test_messages_within_messages_have_an_end() -> None:
    table: dict[int, MessageField] = {}
    table[1] = MessageField("inner", table)
    message = b""
    for _ in range(40):
        message = write({1: MessageField("it", ScalarKind.BYTES)}, {"it": message}) or b"\x0a\x00"
    with pytest.raises(Unparsable, match="within"):
        read(table, message)
