"""Snippets: the same call from a shell or a program, which works exactly as it is shown.

Small inputs stand in the snippet; others are fetched from the admin API. Every name goes through
the quoting of the language it stands in. Where a key is needed, it is read from `SERVEGATE_KEY`.
"""

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from serve.control.gateway import HTTP, STREAM, GatewayAddress
from serve.control.tries.messages import (
    Datatypes,
    Tensors,
    grpc_json,
    json_request,
    request_of,
    why_not_json,
)
from serve.control.tries.records import Try, TrySide
from serve.tensors.codec import HEAD_LENGTH_HEADER
from serve.tensors.datatypes import BYTES, Array, numpy_dtype
from serve.wire.data_answers import model_path

INLINE = 2000  # characters of input that stand in a snippet
_KEY = '-H "authorization: Bearer $SERVEGATE_KEY"'
_LARGEST_MESSAGE = 1 << 30  # bytes that grpcurl shall take
_CURL = "curl -sS --fail-with-body"


@dataclass(frozen=True, slots=True)
class Snippet:
    """The same call as a command or program; `language` is `curl`, `python` or `grpcurl`."""

    language: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class GatewayPorts:
    """How those who read a snippet reach the gateway: its ports, and the URL of the admin API.

    `shows_key` and `admin_shows_key` say whether a key is needed there.
    """

    place: GatewayAddress
    admin: str
    shows_key: bool
    admin_shows_key: bool

    @classmethod
    def through(
        cls, place: GatewayAddress, admin: str, *, shows_key: bool, admin_shows_key: bool
    ) -> "GatewayPorts":
        """By the name under which the admin API was reached, for ports of this machine itself."""
        host = urlsplit(admin).hostname or ""
        moved = GatewayAddress(
            _elsewhere(place.http_url, host), _elsewhere(place.grpc_target, host), place.metrics_url
        )
        return cls(moved, admin.rstrip("/"), shows_key, admin_shows_key)


@dataclass(frozen=True, slots=True, eq=False)
class Sent:
    """What a side was sent: the tensors, and the same as they are kept."""

    tensors: Tensors
    datatypes: Datatypes
    packed: bytes


def snippets(one: Try, side: TrySide, sent: Sent, reach: GatewayPorts) -> list[Snippet]:
    """All of them, for one side of a try."""
    via = "HTTP" if one.via == HTTP else "gRPC"
    found = [
        Snippet("curl", "curl", _curl(one, side, sent, reach)),
        Snippet("python", f"Python, tritonclient over {via}", _python(one, side, sent, reach)),
        Snippet("grpcurl", "grpcurl", _grpcurl(one, side, sent, reach)),
    ]
    return found if one.via != STREAM else found[1:]  # HTTP has no streams of tensors


def _curl(one: Try, side: TrySide, sent: Sent, reach: GatewayPorts) -> str:
    url = f"{reach.place.http_url.rstrip('/')}{model_path(one.model, side.asked)}/infer"
    words = [_CURL, shlex.quote(url), *([_KEY] if reach.shows_key else [])]
    answered = {line.name: line.datatype for line in side.outputs}
    if why_not_json(sent.tensors, sent.datatypes, answered):
        length = request_of(sent.packed).head_length
        words += ["-H 'content-type: application/octet-stream'"]
        words += [f"-H '{HEAD_LENGTH_HEADER}: {length}'", "--data-binary @-"]
        # The answer is a JSON head, and behind it the tensors' bytes.
        return _fetched(one, side, reach, "request.bin", [*words, "--output answer.bin"])
    words += ["-H 'content-type: application/json'"]
    text = _inline(json_request, sent)
    if text:
        return " \\\n  ".join([*words, f"--data-binary {shlex.quote(text)}"])
    return _fetched(one, side, reach, "request.json", [*words, "--data-binary @-"])


def _grpcurl(one: Try, side: TrySide, sent: Sent, reach: GatewayPorts) -> str:
    target = reach.place.grpc_target
    is_secure = target.startswith("https://")
    words = ["grpcurl", *([] if is_secure else ["-plaintext"])]
    words += [f"-max-msg-sz {_LARGEST_MESSAGE}", *([_KEY] if reach.shows_key else [])]
    method = "ModelStreamInfer" if one.via == STREAM else "ModelInfer"
    last = [shlex.quote(target.rpartition("://")[2]), f"inference.GRPCInferenceService/{method}"]
    text = _inline(lambda t, d: grpc_json(one.model, side.asked, t, d), sent)
    if text:
        return " \\\n  ".join([*words, f"-d {shlex.quote(text)}", *last])
    return _fetched(one, side, reach, "request.json", [*words, "-d @", *last], via="&via=grpc")


def _python(one: Try, side: TrySide, sent: Sent, reach: GatewayPorts) -> str:
    is_grpc = one.via != HTTP
    target = reach.place.grpc_target if is_grpc else reach.place.http_url
    arrays = {name: _literal(array, sent.datatypes[name]) for name, array in sent.tensors.items()}
    is_inline = all(arrays.values()) and sum(map(len, arrays.values())) <= INLINE
    archive = f"{_try_url(one, reach)}/inputs.npz?side={side.side}"
    headers = _key_of(reach.shows_key)
    imports = ["import io", "import urllib.request"] if not is_inline else []
    imports += ["import os"] if reach.shows_key or (reach.admin_shows_key and imports) else []
    body = [
        *sorted(imports),
        *([""] if imports else []),
        "import numpy as np",
        f"import tritonclient.{'grpc' if is_grpc else 'http'} as triton",
        "",
    ]
    if not is_inline:
        asked = f"urllib.request.Request({archive!r}, headers={_key_of(reach.admin_shows_key)})"
        body += [f"archive = urllib.request.urlopen({asked}).read()"]
        body += ["arrays = np.load(io.BytesIO(archive))"]
    secure = ", ssl=True" if target.startswith("https://") else ""
    host = target.rpartition("://")[2].rstrip("/")
    body += [f"client = triton.InferenceServerClient({host!r}{secure})", "inputs = []"]
    for name, datatype in sent.datatypes.items():
        fetched = f"arrays[{name!r}]" + (".astype(object)" if datatype == BYTES else "")
        body += [f"tensor = {arrays[name] if is_inline else fetched}"]
        body += [f"inputs.append(triton.InferInput({name!r}, tensor.shape, {datatype!r}))"]
        body += ["inputs[-1].set_data_from_numpy(tensor)"]
    asked = f"{one.model!r}, inputs, model_version={side.asked!r}"
    shown = [f"print({line.name!r}, result.as_numpy({line.name!r}))" for line in side.outputs]
    shown = shown or ["print(result.get_response())"]
    if one.via == STREAM:
        body += [
            "",
            "",
            "def show(result, error):",
            *(f"    {line}" for line in _raised(shown)),
            "",
        ]
        body += ["", f"client.start_stream(show, headers={headers})"]
        body += [f"client.async_stream_infer({asked})", "client.stop_stream()", ""]
        return "\n".join(body)
    return "\n".join([*body, f"result = client.infer({asked}, headers={headers})", *shown, ""])


def _raised(shown: Sequence[str]) -> Sequence[str]:
    return ["if error:", "    print(error)", "    return", *shown]


def _literal(array: Array, datatype: str) -> str:
    """The array as Python; empty where that cannot be, or is long."""
    if array.size > INLINE or (array.dtype.kind == "f" and not _is_finite(array)):
        return ""
    dtype = "object" if datatype == BYTES else f"np.{numpy_dtype(datatype)}"
    dtype = {"np.bool": "np.bool_"}.get(dtype, dtype)
    if not array.size:
        return f"np.empty({array.shape!r}, dtype={dtype})"
    values = json_request({"": array}, {"": datatype})["inputs"][0]["data"]
    text = repr(array.tolist() if array.dtype.kind in "Ob" else values)
    return f"np.array({text}, dtype={dtype})"


def _is_finite(array: Array) -> bool:
    return bool(np.isfinite(array).all())


def _inline(made: Any, sent: Sent) -> str:
    """The request as one line of JSON; empty for one that is too long."""
    if sum(array.size for array in sent.tensors.values()) > INLINE:
        return ""
    text = json.dumps(made(sent.tensors, sent.datatypes), separators=(",", ":"))
    return text if len(text) <= INLINE else ""


def _fetched(
    one: Try, side: TrySide, reach: GatewayPorts, what: str, words: Sequence[str], *, via: str = ""
) -> str:
    """A command that is given on its standard input what the admin API has."""
    key = [_KEY] if reach.admin_shows_key else []
    url = shlex.quote(f"{_try_url(one, reach)}/{what}?side={side.side}{via}")
    return " ".join([_CURL, *key, url]) + " |\n  " + " \\\n  ".join(words)


def _try_url(one: Try, reach: GatewayPorts) -> str:
    return f"{reach.admin}/api/tries/{one.id}"


def _key_of(is_shown: bool) -> str:
    return '{"authorization": "Bearer " + os.environ["SERVEGATE_KEY"]}' if is_shown else "{}"


def _elsewhere(url: str, host: str) -> str:
    """The URL, or HOST:PORT, with another host where it is this machine's own."""
    scheme, mark, rest = url.rpartition("://")
    name, colon, port = rest.rpartition(":")
    if not host or name not in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::]"):
        return url
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}{mark}{shown}{colon}{port}"
