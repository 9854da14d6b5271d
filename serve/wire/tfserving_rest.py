"""TensorFlow Serving's REST API: its paths, its answers without tensors, and its errors.

| path below `/v1/models/{model}[/versions/{number} or /labels/{label}]` | method |
|------------------------------------------------------------------------|--------|
| `:predict`, `:classify`, `:regress`                                    | POST   |
| nothing: the status of one version, or of all                          | GET    |
| `/metadata`                                                            | GET    |

Everything else below `/v1/models` is a malformed request, 400. Names are matched as their raw
bytes: no model or label of ours needs percent-encoding, so a `%` is malformed, too.
Source: "RESTful API" of TensorFlow Serving's documentation; `http_rest_api_util.cc` for the paths,
`server_core.cc` and `get_model_status_impl.cc` for the sentences.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from serve.core.calls import Reply
from serve.core.errors import (
    BadRequest,
    NotFound,
    ServegateError,
    UnknownLabel,
    UnknownModel,
    UnknownVersion,
)
from serve.core.snapshot import ModelView
from serve.wire.status import (
    FAILED_PRECONDITION,
    INTERNAL,
    INVALID_ARGUMENT,
    NOT_FOUND,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    grpc_code,
    http_error,
    http_status,
)

_MODEL = (
    rb"/v1/models/(?P<model>[^/:%]+)(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:%]+))?"
)
_PREDICTION = re.compile(_MODEL + rb":(?P<task>classify|regress|predict)")
_QUESTION = re.compile(_MODEL + rb"(?:/(?P<task>metadata))?")
_LAST_VERSION = (1 << 63) - 1
DEFAULT_SIGNATURE = "serving_default"
METHOD_NAME = "tensorflow/serving/predict"
# A model in Triton has one signature; these are the names under which clients know the usual ones.
_SIGNATURES = frozenset(
    {
        "",
        DEFAULT_SIGNATURE,
        METHOD_NAME,
        "tensorflow/serving/classify",
        "tensorflow/serving/regress",
    }
)
_GRPC_OF_HTTP = {
    400: INVALID_ARGUMENT,
    404: NOT_FOUND,
    429: RESOURCE_EXHAUSTED,
    500: INTERNAL,
    501: UNIMPLEMENTED,
    503: UNAVAILABLE,
}
_UNKNOWN = 2


class TfServingTask(StrEnum):
    """What a request is for."""

    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"
    STATUS = "status"
    METADATA = "metadata"


@dataclass(frozen=True, slots=True)
class Servable:
    """Which model a request names, and how: by a number, by a label, or neither."""

    model: str
    version: int | None = None
    label: str = ""

    def __str__(self) -> str:
        """As TensorFlow Serving's errors write it."""
        if self.version is None:
            return f"Latest({self.model})"
        return f"Specific({self.model}, {self.version})"

    @property
    def selector(self) -> str:
        """As a call names the version."""
        return self.label if self.version is None else str(self.version)

    def check(self) -> None:
        """An error where the selector would be taken for something else than it is."""
        if self.label.isdigit():
            raise UnknownLabel(self.model, self.label, ())
        if self.version is not None and self.version < 0:
            raise UnknownVersion(self.model, str(self.version))


class TfServingQuestion(NamedTuple):
    """What a request asks for, and of which model."""

    task: TfServingTask
    servable: Servable


class UnknownSignature(BadRequest):
    """A signature that the model does not have."""

    code = "unknown_signature"


class TritonRefused(ServegateError):
    """Triton's own answer is an error. `status` is that of HTTP."""

    code = "triton_refused"

    def __init__(self, reply: Reply) -> None:
        super().__init__(said_by_triton(reply))
        self.status = reply.status


class TfServingError(NamedTuple):
    """An error as TensorFlow Serving's clients read it."""

    http: int
    grpc: int
    message: str


def parse(method: str, raw_path: bytes) -> TfServingQuestion:
    """What a request below `/v1/models` asks for; `BadRequest` for a malformed one."""
    if method == "GET" and raw_path == b"/v1/models":
        raise BadRequest("Missing model name in request.")
    pattern = {"POST": _PREDICTION, "GET": _QUESTION}.get(method)
    match = pattern.fullmatch(raw_path) if pattern else None
    if match is None:
        raise BadRequest(f"Malformed request: {method} {raw_path.decode('latin-1')}")
    version = None
    if match["version"] is not None:
        version = int(match["version"][:20])
        if version > _LAST_VERSION or len(match["version"]) > 20:
            text = match["version"].decode()
            raise BadRequest(f"Failed to convert version: {text} to numeric.")
    label = (match["label"] or b"").decode("latin-1")
    task = TfServingTask((match["task"] or b"status").decode())
    return TfServingQuestion(task, Servable(match["model"].decode("latin-1"), version, label))


def check_signature(name: str, otherwise: str = "") -> None:
    """`UnknownSignature` unless the name is one of those of the only signature that there is."""
    if name not in _SIGNATURES:
        sentence = f'Serving signature name: "{name}" not found in signature def'
        raise UnknownSignature(otherwise or sentence)


def told(error: ServegateError, servable: Servable | None) -> TfServingError:
    """Status codes and the sentence for an error."""
    if isinstance(error, TritonRefused):
        return TfServingError(error.status, _GRPC_OF_HTTP.get(error.status, _UNKNOWN), str(error))
    if servable is not None and isinstance(error, UnknownModel | UnknownVersion | UnknownLabel):
        if servable.label:  # of a model that is not there, too
            message = f"Unrecognized servable version label: {servable.label}"
            return TfServingError(400, INVALID_ARGUMENT, message)
        return TfServingError(404, NOT_FOUND, f"Servable not found for request: {servable}")
    if isinstance(error, UnknownSignature):
        return TfServingError(400, FAILED_PRECONDITION, str(error))
    return TfServingError(http_status(error), grpc_code(error), str(error))


def error_reply(error: ServegateError, servable: Servable | None) -> Reply:
    """The error as an HTTP answer. Those of ours say so in `servegate-error`."""
    said = told(error, servable)
    ours = () if isinstance(error, TritonRefused) else http_error(error).headers
    headers = tuple(header for header in ours if header[0] != b"content-type")
    body = json.dumps({"error": said.message}, ensure_ascii=False).encode("utf-8", "replace")
    return Reply(said.http, body, ((b"content-type", b"application/json"), *headers))


def said_by_triton(reply: Reply) -> str:
    """The sentence in an error answer of Triton's."""
    try:
        return str(json.loads(reply.body)["error"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return reply.body[:1024].decode("utf-8", "replace")


def statuses(servable: Servable, view: ModelView | None) -> list[dict[str, Any]]:
    """The status of one version, or of all that are known, the newest first.

    Without a view there is no such model, or none that the caller may see.
    """
    version, known = servable.version, _versions(view)
    if servable.label:
        version = view.labels.get(servable.label) if view else None
        if version is None:
            raise UnknownLabel(servable.model, servable.label, ())
    if version is not None and version not in known:
        raise NotFound(f"Could not find version {version} of model {servable.model}")
    if view is None or not known:
        raise NotFound(f"Could not find any versions of model {servable.model}")
    wanted = known if version is None else {version}
    return [_status(number, view) for number in sorted(wanted, reverse=True)]


def status_json(statuses: list[dict[str, Any]]) -> bytes:
    """The answer to a question for the status."""
    return json.dumps({"model_version_status": statuses}, indent=1).encode()


def metadata_json(
    servable: Servable, version: int, inputs: Mapping[str, Any], outputs: Mapping[str, Any]
) -> bytes:
    """The answer to a question for the metadata; `inputs` and `outputs` are `tensor_info`s."""
    signature = {
        "inputs": inputs,
        "outputs": outputs,
        "method_name": METHOD_NAME,
        "defaults": {},
    }
    document = {
        "model_spec": {"name": servable.model, "signature_name": "", "version": str(version)},
        "metadata": {"signature_def": {"signature_def": {DEFAULT_SIGNATURE: signature}}},
    }
    return json.dumps(document, indent=1).encode()


def tensor_info(name: str, dtype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    """One input or output, as `TensorInfo` is written in JSON."""
    dims = [{"size": str(size), "name": ""} for size in shape]
    return {
        "dtype": dtype,
        "tensor_shape": {"dim": dims, "unknown_rank": False},
        "name": f"{name}:0",
    }


def _versions(view: ModelView | None) -> set[int]:
    """The versions that a model has, or is said to have."""
    if view is None:
        return set()
    return {*view.targets, *view.labels.values(), *view.called}


def _status(version: int, view: ModelView) -> dict[str, Any]:
    state, code, message = "AVAILABLE", "OK", ""
    if version not in view.targets:
        state = "LOADING"
        if view.failed:
            state, code, message = "END", "UNAVAILABLE", "no replica could load it"
    status = {"error_code": code, "error_message": message}
    return {"version": str(version), "state": state, "status": status}
