"""gRPC server reflection: which services there are, and the descriptors of their messages.

Triton has none; this is the gateway's own, so that `grpcurl` and its kind can be used. The two
versions of the protocol, `v1` and `v1alpha`, have the same messages. Descriptors are handed out as
they were given: of each file only its names are read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from serve.wire.messages import MessageField, ScalarKind, Table, read, write
from serve.wire.status import INVALID_ARGUMENT, NOT_FOUND

METHODS = tuple(
    f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
    for version in ("v1", "v1alpha")
)
_REQUEST: Table = {
    1: MessageField("host", ScalarKind.TEXT),
    3: MessageField("file_by_filename", ScalarKind.TEXT),
    4: MessageField("file_containing_symbol", ScalarKind.TEXT),
    5: MessageField(
        "file_containing_extension", {1: MessageField("containing_type", ScalarKind.TEXT)}
    ),
    6: MessageField("all_extension_numbers_of_type", ScalarKind.TEXT),
    7: MessageField("list_services", ScalarKind.TEXT),
}
_ANSWER: Table = {
    1: MessageField("valid_host", ScalarKind.TEXT),
    2: MessageField("original_request", ScalarKind.BYTES),
    4: MessageField(
        "file_descriptor_response", {1: MessageField("files", ScalarKind.BYTES, many=True)}
    ),
    5: MessageField(
        "all_extension_numbers_response", {1: MessageField("base_type_name", ScalarKind.TEXT)}
    ),
    6: MessageField(
        "list_services_response",
        {1: MessageField("service", {1: MessageField("name", ScalarKind.TEXT)}, many=True)},
    ),
    7: MessageField(
        "error_response",
        {
            1: MessageField("error_code", ScalarKind.NUMBER),
            2: MessageField("error_message", ScalarKind.TEXT),
        },
    ),
}
# Names only, of google/protobuf/descriptor.proto.
_NAMED: Table = {1: MessageField("name", ScalarKind.TEXT)}
_NAMED_2: Table = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("parts", _NAMED, many=True),
}
_MESSAGE: dict[int, MessageField] = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("parts", _NAMED, many=True),
    4: MessageField("enums", _NAMED_2, many=True),
}
_MESSAGE[3] = MessageField("messages", _MESSAGE, many=True)
_FILE: Table = {
    1: MessageField("name", ScalarKind.TEXT),
    2: MessageField("package", ScalarKind.TEXT),
    3: MessageField("dependencies", ScalarKind.TEXT, many=True),
    4: MessageField("messages", _MESSAGE, many=True),
    5: MessageField("enums", _NAMED_2, many=True),
    6: MessageField("services", _NAMED_2, many=True),
}
_SET: Table = {1: MessageField("files", ScalarKind.BYTES, many=True)}


@dataclass(frozen=True, slots=True)
class DescriptorFile:
    """One `FileDescriptorProto`."""

    descriptor: bytes
    dependencies: tuple[str, ...]


class Reflection:
    """What can be asked about the files of one or several serialised `FileDescriptorSet`s."""

    def __init__(self, *sets: bytes) -> None:
        self.services: list[str] = []
        self._files: dict[str, DescriptorFile] = {}
        self._symbols: dict[str, str] = {}  # full names, and the files that they are in
        self._messages: set[str] = set()
        for one in sets:
            for descriptor in read(_SET, one).get("files", ()):
                self._add(descriptor)

    def __repr__(self) -> str:
        return f"<Reflection {' '.join(self._files)}>"

    def answer(self, message: bytes) -> bytes:
        """`ServerReflectionResponse` to a `ServerReflectionRequest`; `Unparsable` on nonsense."""
        asked = read(_REQUEST, message)
        answer = {"valid_host": asked.get("host", ""), "original_request": message}
        return write(_ANSWER, answer | self._found(asked))

    def _found(self, asked: dict[str, Any]) -> dict[str, Any]:
        if "list_services" in asked:
            services = [{"name": name} for name in sorted(self.services)]
            return {"list_services_response": {"service": services}}
        if "file_by_filename" in asked:
            return self._file(asked["file_by_filename"], asked["file_by_filename"])
        if "file_containing_symbol" in asked:
            symbol = asked["file_containing_symbol"]
            return self._file(self._symbols.get(symbol, ""), symbol)
        if "file_containing_extension" in asked:
            return _error(NOT_FOUND, "there are no extensions")
        if "all_extension_numbers_of_type" in asked:
            name = asked["all_extension_numbers_of_type"]
            if name not in self._messages:
                return _error(NOT_FOUND, f"'{name}' is unknown")
            return {"all_extension_numbers_response": {"base_type_name": name}}
        return _error(INVALID_ARGUMENT, "the request contains no known question")

    def _file(self, name: str, asked: str) -> dict[str, Any]:
        """The file and all that it needs, itself first."""
        if name not in self._files:
            return _error(NOT_FOUND, f"'{asked}' is unknown")
        names, waiting = [name], list(self._files[name].dependencies)
        while waiting:
            needed = waiting.pop(0)
            if needed in self._files and needed not in names:
                names.append(needed)
                waiting += self._files[needed].dependencies
        files = [self._files[one].descriptor for one in names]
        return {"file_descriptor_response": {"files": files}}

    def _add(self, descriptor: bytes) -> None:
        known = read(_FILE, descriptor)
        name, package = known["name"], known.get("package", "")
        self._files[name] = DescriptorFile(descriptor, tuple(known.get("dependencies", ())))
        self.services += [_full(package, one["name"]) for one in known.get("services", ())]
        self._messages |= set(_messages(package, known.get("messages", ())))
        self._symbols |= dict.fromkeys(_symbols(package, known), name)


def _full(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _symbols(scope: str, known: dict[str, Any]) -> Iterator[str]:
    """The full names of all that a file or a message declares; an enum's values lie beside it."""
    for kind in ("messages", "enums", "services"):
        for one in known.get(kind, ()):
            full = _full(scope, one["name"])
            yield full
            inner = scope if kind == "enums" else full
            yield from (_full(inner, part["name"]) for part in one.get("parts", ()))
            if kind == "messages":
                yield from _symbols(full, one)


def _messages(scope: str, messages: Iterable[dict[str, Any]]) -> Iterator[str]:
    for one in messages:
        full = _full(scope, one["name"])
        yield full
        yield from _messages(full, one.get("messages", ()))


def _error(code: int, words: str) -> dict[str, Any]:
    return {"error_response": {"error_code": code, "error_message": words}}
