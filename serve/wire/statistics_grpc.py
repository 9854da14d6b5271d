"""Statistics, repository index and metadata as gRPC messages: their tables, and their values.

Source: Triton's `grpc_service.proto`. The words are those of Triton's JSON, so that what
`wire.statistics` does with entries of one protocol it does with those of the other.
"""

from collections.abc import Iterable
from typing import Any

from serve.core.calls import Verb
from serve.wire.kserve_grpc import method_of, selector_of
from serve.wire.messages import MessageField, ScalarKind, Table, read, write
from serve.wire.statistics import Entry

STATISTICS = method_of(Verb.STATS)
INDEX = method_of(Verb.INDEX)
METADATA = method_of(Verb.METADATA)


def _durations(*names: str) -> Table:
    """A message whose fields are counts and nanoseconds, numbered as they stand here."""
    one = {1: MessageField("count", ScalarKind.NUMBER), 2: MessageField("ns", ScalarKind.NUMBER)}
    return {number: MessageField(name, one) for number, name in enumerate(names, 1)}


_COMPUTE = ("compute_input", "compute_infer", "compute_output")
_INFERENCE = _durations("success", "fail", "queue", *_COMPUTE, "cache_hit", "cache_miss")
_BATCH: Table = {1: MessageField("batch_size", ScalarKind.NUMBER)} | {
    number + 1: one for number, one in _durations(*_COMPUTE).items()
}
_RESPONSE = _durations(
    "compute_infer", "compute_output", "success", "fail", "empty_response", "cancel"
)
_MEMORY: Table = {
    1: MessageField("type", ScalarKind.TEXT),
    2: MessageField("id", ScalarKind.SIGNED),
    3: MessageField("byte_size", ScalarKind.NUMBER),
}
MODEL: Table = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("version", ScalarKind.TEXT),
    3: MessageField("last_inference", ScalarKind.NUMBER),
    4: MessageField("inference_count", ScalarKind.NUMBER),
    5: MessageField("execution_count", ScalarKind.NUMBER),
    6: MessageField("inference_stats", _INFERENCE),
    7: MessageField("batch_stats", _BATCH, many=True),
    8: MessageField("memory_usage", _MEMORY, many=True),
    9: MessageField("response_stats", _RESPONSE, keyed=True),
}
INDEXED: Table = {
    number: MessageField(name, ScalarKind.TEXT)
    for number, name in enumerate(("name", "version", "state", "reason"), 1)
}
_ANSWERS: dict[str, Table] = {
    STATISTICS: {1: MessageField("entries", MODEL, many=True)},
    INDEX: {1: MessageField("entries", INDEXED, many=True)},
}
_NAMED: Table = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("version", ScalarKind.TEXT),
}
_METADATA: Table = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("versions", ScalarKind.TEXT, many=True),
    3: MessageField("platform", ScalarKind.TEXT),
    4: MessageField("inputs", ScalarKind.BYTES, many=True),
    5: MessageField("outputs", ScalarKind.BYTES, many=True),
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
