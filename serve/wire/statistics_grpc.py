"""Statistics, repository index and metadata as gRPC messages: their tables, and their values.

Source: Triton's `grpc_service.proto`. The words are those of Triton's JSON, so that what
`wire.statistics` does with entries of one protocol it does with those of the other.
"""

from collections.abc import Iterable
from typing import Any

from serve.core.calls import Verb
from serve.wire.kserve_grpc import method_of, selector_of
from serve.wire.messages import Field, Kind, Table, read, write
from serve.wire.statistics import Entry

STATISTICS = method_of(Verb.STATS)
INDEX = method_of(Verb.INDEX)
METADATA = method_of(Verb.METADATA)


def _durations(*names: str) -> Table:
    """A message whose fields are counts and nanoseconds, numbered as they stand here."""
    one = {1: Field("count", Kind.NUMBER), 2: Field("ns", Kind.NUMBER)}
    return {number: Field(name, one) for number, name in enumerate(names, 1)}


_COMPUTE = ("compute_input", "compute_infer", "compute_output")
_INFERENCE = _durations("success", "fail", "queue", *_COMPUTE, "cache_hit", "cache_miss")
_BATCH: Table = {1: Field("batch_size", Kind.NUMBER)} | {
    number + 1: one for number, one in _durations(*_COMPUTE).items()
}
_RESPONSE = _durations(
    "compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"
)
_MEMORY: Table = {
    1: Field("type", Kind.TEXT),
    2: Field("id", Kind.SIGNED),
    3: Field("byte_size", Kind.NUMBER),
}
MODEL: Table = {
    1: Field("name", Kind.TEXT),
    2: Field("version", Kind.TEXT),
    3: Field("last_inference", Kind.NUMBER),
    4: Field("inference_count", Kind.NUMBER),
    5: Field("execution_count", Kind.NUMBER),
    6: Field("inference_stats", _INFERENCE),
    7: Field("batch_stats", _BATCH, many=True),
    8: Field("memory_usage", _MEMORY, many=True),
    9: Field("response_stats", _RESPONSE, keyed=True),
}
INDEXED: Table = {
    number: Field(name, Kind.TEXT)
    for number, name in enumerate(("name", "version", "state", "reason"), 1)
}
_ANSWERS: dict[str, Table] = {
    STATISTICS: {1: Field("entries", MODEL, many=True)},
    INDEX: {1: Field("entries", INDEXED, many=True)},
}
_NAMED: Table = {1: Field("name", Kind.TEXT), 2: Field("version", Kind.TEXT)}
_METADATA: Table = {
    1: Field("name", Kind.TEXT),
    2: Field("versions", Kind.TEXT, many=True),
    3: Field("platform", Kind.TEXT),
    4: Field("inputs", Kind.BYTES, many=True),
    5: Field("outputs", Kind.BYTES, many=True),
}


def asked_about(message: bytes) -> tuple[str, str]:
    """The model that a question names, and what it selects; `Unparsable`, `BadVersion`."""
    asked = read(_NAMED, message)
    return asked.get("name", ""), selector_of(asked.get("version", ""))


def question(model: str, version: str) -> bytes:
    """A question about a model, or one version of it."""
    return write(_NAMED, {"name": model, "version": version})


def entries(method: str, answer: bytes) -> list[Entry]:
    """What an answer of this method lists; `Unparsable` on nonsense."""
    unnamed = {"name": "", "version": ""}
    found: list[Entry] = read(_ANSWERS[method], answer).get("entries", [])
    return [unnamed | entry for entry in found]


def answer(method: str, entries: Iterable[Entry]) -> bytes:
    """The answer that lists these."""
    return write(_ANSWERS[method], {"entries": entries})


def metadata(answer: bytes, name: str, versions: Iterable[int]) -> bytes:
    """Metadata under another name, with other versions where some are given."""
    told: dict[str, Any] = read(_METADATA, answer) | {"name": name}
    numbers = [str(version) for version in versions]
    return write(_METADATA, told | ({"versions": numbers} if numbers else {}))
