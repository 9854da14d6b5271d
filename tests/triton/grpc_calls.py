"""The raw gRPC calls that the differential suite makes, by what they are about."""

import struct
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from .client_models import VALUES
from .raw_grpc import RawCall, as_bytes, infer, stream, unary

_VERSIONS = ("9", "1", " 1", "01", "1abc", "1.5", "+2", "abc", "-1", "0")
NAMES = {  # what Triton does with these, and with none
    "model": ("nothing", ""),
    "no model": ("", ""),
    "no version": ("told", ""),
    "a version beyond int64": ("told", "9" * 25),
    **{f"version {one}": ("told", one) for one in _VERSIONS},
    "a name with a slash": ("a/b", ""),
    "a name with a percent sign": ("tol%64", ""),
    "a name that is not ASCII": ("mod\u00e8le", ""),
}
_QUESTIONS = {
    "ModelReady": pb.ModelReadyRequest,
    "ModelMetadata": pb.ModelMetadataRequest,
    "ModelConfig": pb.ModelConfigRequest,
    "ModelStatistics": pb.ModelStatisticsRequest,
}
_VALUES = {  # more special ones than `VALUES`
    "BYTES": b"".join(struct.pack("<I", len(word)) + word for word in (b"", b"\xff\x00\n")),
    "BF16": b"\x80\x3f\x00\x40",
    "FP16": np.array([1, np.nan], np.float16),
    "FP32": np.array([np.inf, -0.0], np.float32),
    "FP64": np.array([1e300, np.nan]),
}


def _questions() -> dict[str, RawCall]:
    """Every question about a model, for every kind of name."""
    made = {}
    for words, (name, version) in NAMES.items():
        for method, kind in _QUESTIONS.items():
            made[f"{method}: {words}"] = unary(method, kind(name=name, version=version))
        request = infer(name, version=version)
        made[f"ModelInfer: {words}"] = unary("ModelInfer", request)
        made[f"ModelStreamInfer: {words}"] = stream(request)
    return made


def _server() -> dict[str, RawCall]:
    methods = ("ServerLive", "ServerReady", "ServerMetadata")
    indices = {
        "the index": pb.RepositoryIndexRequest(),
        "the index of what is ready": pb.RepositoryIndexRequest(ready=True),
        "the index of another repository": pb.RepositoryIndexRequest(repository_name="nowhere"),
    }
    return {
        **{method: unary(method) for method in methods},
        **{f"{method}: garbage": unary(method, b"\xff\xff") for method in methods},
        **{name: unary("RepositoryIndex", request) for name, request in indices.items()},
        "health": unary("/grpc.health.v1.Health/Check"),
        "health of an unknown service": unary("/grpc.health.v1.Health/Check", b"\x0a\x01x"),
        "watching health": unary("/grpc.health.v1.Health/Watch"),
        "an unknown method": unary("Nothing"),
        "an unknown service": unary("/nothing.Nothing/Nothing"),
        "a path without a service": unary("/Nothing"),
    }


def _both_ways(requests: dict[str, pb.ModelInferRequest]) -> dict[str, RawCall]:
    """Each of these as a unary call, and on a stream."""
    return {name: unary("ModelInfer", one) for name, one in requests.items()} | {
        f"{name}, streamed": stream(one) for name, one in requests.items()
    }


def _datatypes() -> dict[str, RawCall]:
    return _both_ways(
        {
            f"datatype {one}": infer(values=_VALUES.get(one, values[1:]), datatype=one)
            for one, values in VALUES.items()
        }
    )


def _typed(kind: str, *values: Any, raw: bool = False, **more: Any) -> pb.ModelInferRequest:
    """A request whose values are in `contents`; perhaps it has raw ones, too."""
    made = infer(**more)
    if not raw:
        del made.raw_input_contents[:]
    getattr(made.inputs[0].contents, f"{kind}_contents").extend(values)
    return made


def _wanting(output: str, classes: int = 0) -> pb.ModelInferRequest:
    made = infer()
    wanted = made.outputs.add(name=output)
    if classes:
        wanted.parameters["classification"].int64_param = classes
    return made


def _inputs() -> dict[str, RawCall]:
    several = infer()
    several.MergeFrom(infer(datatype="INT32", values=np.array([5, 6], np.int32)))
    return _both_ways(
        {
            "typed contents": _typed("fp32", 1.5, 2.5),
            "raw and typed contents": _typed("fp32", 1.5, 2.5, raw=True),
            "typed words": _typed("bytes", b"a", b"", datatype="BYTES"),
            "several inputs": several,
            "a chosen output": _wanting("out_FP32"),
            "an unknown output": _wanting("out_nothing"),
            "classification": _wanting("out_FP32", classes=2),
            "no input": pb.ModelInferRequest(model_name="mirror", model_version="1"),
            "an unknown input": infer(name="nothing"),
            "too few bytes": infer(values=b"\0" * 4),
            "a negative dimension": infer(shape=(-2,)),
            "a shape without elements": infer(values=b"", shape=(0,)),
            "a request id": infer(request_id="the 7th"),
            "a request id in an error": infer(request_id="the 7th", shape=(1, 2)),
            "a request id that is not ASCII": infer(request_id="d\u00e9j\u00e0"),
            "a large tensor": infer(values=np.zeros(300_000, np.float32)),
        }
    )


def _parameters() -> dict[str, RawCall]:
    told: dict[str, dict[str, Any]] = {
        "priority": {"priority": 1},
        "priority as a word": {"priority": "high"},
        "timeout": {"timeout": 10_000_000},
        "parameters of one's own": {"a": 1, "b": "two", "c": True, "d": 0.5},
        "a reserved parameter": {"triton_mine": 1},
        "a sequence to a model without sequences": {"sequence_id": 5, "sequence_start": True},
        "an empty final response asked of a unary call": {
            "triton_enable_empty_final_response": True
        },
    }
    return _both_ways(
        {name: infer("told", parameters=each, request_id="5") for name, each in told.items()}
        | {"an error of the model": infer("told", values=(-1,))}
    )


def _bytes_and_heads() -> dict[str, RawCall]:
    whole = as_bytes(infer())
    names = b"\x0a\x06mirror\x12\x011"
    late = whole[len(names) :] + names
    metadata = (("x-anything", "goes"), ("traceparent", f"00-{'1' * 32}-{'2' * 16}-01"))
    made = {
        "garbage": unary("ModelInfer", b"\xff\xff\xff"),
        "a message that is cut off": unary("ModelInfer", whole[:-3]),
        "a field number of zero": unary("ModelInfer", b"\x02\x00"),
        "an empty message": unary("ModelInfer"),
        "a name that is not UTF-8": unary("ModelInfer", b"\x0a\x01\xff" + whole),
        "names behind the tensors": unary("ModelInfer", late),
        "unknown fields": unary("ModelInfer", whole + b"\xfa\x7f\x03abc"),
        "metadata": unary("ModelInfer", whole, metadata=metadata),
        "binary metadata": unary("ModelInfer", whole, metadata=(("x-bin", b"\xff\x00"),)),
        "no message": RawCall("ModelInfer", ()),
        "garbage in a question": unary("ModelMetadata", b"\xff\xff\xff"),
        "a deadline that does not pass": unary(
            "ModelInfer", infer("slow", values=(0.1,)), timeout=20.0
        ),
        "a decoupled model by a unary call": unary("ModelInfer", infer("repeat")),
    }
    for compression in ("gzip", "deflate"):
        made[f"{compression}"] = unary("ModelInfer", infer(), compression=compression)
        made[f"{compression}, a question"] = unary(
            "ModelConfig", pb.ModelConfigRequest(name="mirror"), compression=compression
        )
        made[f"{compression}, streamed"] = stream(infer(), compression=compression)
    return made


def _streams() -> dict[str, RawCall]:
    """Not here, as Triton 2.51 dies of it: a decoupled model's error with `triton_grpc_error`."""
    final = {"triton_enable_empty_final_response": True}
    ends = (("triton_grpc_error", "true"),)
    wrong, unknown = infer(shape=(1, 2), request_id="w"), infer("nothing", name="x")
    fails = infer("told", values=(-1,), request_id="f")

    def times(number: float, **more: Any) -> pb.ModelInferRequest:
        return infer("repeat", values=(number, 5), request_id="r", **more)

    return {
        "a stream without a message": RawCall("ModelStreamInfer", ()),
        "several requests of one stream": stream(*[infer(request_id=str(n)) for n in range(5)]),
        "several versions on one stream": stream(
            infer("told", request_id="a"),
            infer("told", version="2", request_id="b"),
            answers=(1, 1),
        ),
        "several models on one stream": stream(
            infer(request_id="a"), _step(1, "start"), answers=(1, 1)
        ),
        "an error between answers": stream(infer(), wrong, infer(), answers=(1, 1, 1)),
        "an unknown model between answers": stream(infer(), unknown, infer(), answers=(1, 1, 1)),
        "an error of a model between answers": stream(infer(), fails, infer(), answers=(1, 1, 1)),
        "an error of a version that the caller did not name": stream(
            infer("told", version="", values=(-1,))
        ),
        "an error that ends the stream": stream(fails, metadata=ends),
        "an error behind an answer that ends the stream": stream(
            infer(), fails, answers=(1, 0), metadata=ends
        ),
        "a wrong shape with triton_grpc_error": stream(wrong, metadata=ends),
        "an unknown model with triton_grpc_error": stream(unknown, metadata=ends),
        "garbage on a stream": stream(b"\xff\xff\xff"),
        "garbage behind an answer": stream(infer(), b"\xff\xff\xff", answers=(1, 0)),
        "decoupled: three answers": stream(times(3)),
        "decoupled: answers that end with an empty one": stream(times(2, parameters=final)),
        "decoupled: two requests": stream(times(2), times(3), answers=(2, 3)),
        "decoupled: half-closed with answers owed": stream(times(50)),
        "decoupled: an error behind answers": stream(times(-3)),
        "an empty final response of a model that answers once": stream(infer(parameters=final)),
    }


def _step(sequence: Any, *flags: str, version: str = "1") -> pb.ModelInferRequest:
    parameters = {"sequence_id": sequence, **{f"sequence_{flag}": True for flag in flags}}
    value = sequence if isinstance(sequence, int) else 1
    return infer("sums", version=version, values=(value,), shape=(1, 1), parameters=parameters)


def _sequences() -> dict[str, RawCall]:
    return {
        "a sequence": stream(_step(7, "start"), _step(7), _step(7, "end"), answers=(1, 1, 1)),
        "a sequence without a version": stream(
            _step(8, "start", version=""), _step(8, "end", version=""), answers=(1, 1)
        ),
        "a sequence named by a word": stream(
            _step("word", "start"), _step("word", "end"), answers=(1, 1)
        ),
        "a sequence that has not begun": unary("ModelInfer", _step(9)),
        "a sequence without an id": unary("ModelInfer", infer("sums", values=(1,), shape=(1, 1))),
        "a sequence in one call": unary("ModelInfer", _step(10, "start", "end")),
    }


_MANAGEMENT = (
    "RepositoryModelLoad RepositoryModelUnload SystemSharedMemoryStatus"
    " SystemSharedMemoryRegister SystemSharedMemoryUnregister CudaSharedMemoryStatus"
    " CudaSharedMemoryRegister CudaSharedMemoryUnregister TraceSetting LogSettings"
)


def _gone() -> dict[str, RawCall]:
    """A model that is not loaded any more, before the gateway has heard of it."""
    made = {}
    for words, version in (("no version", ""), ("version 1", "1")):
        request = infer("gone", version=version)
        made[f"unloaded, {words}: ModelInfer"] = unary("ModelInfer", request)
        made[f"unloaded, {words}: ModelStreamInfer"] = stream(request)
        for method, kind in _QUESTIONS.items():
            made[f"unloaded, {words}: {method}"] = unary(method, kind(name="gone", version=version))
    return made


def _afterwards() -> dict[str, RawCall]:
    """What Triton has counted in the meantime."""
    return {
        f"statistics of {name or 'all'}, afterwards": unary(
            "ModelStatistics", pb.ModelStatisticsRequest(name=name)
        )
        for name in ("", "mirror", "repeat", "sums")
    }


CALLS = (
    _server()
    | _questions()
    | _datatypes()
    | _inputs()
    | _parameters()
    | _bytes_and_heads()
    | _streams()
    | _sequences()
    | {f"management: {name}": unary(name) for name in _MANAGEMENT.split()}
    | _gone()
    | _afterwards()
)

_LABEL = "a word is a label to the gateway, and it says which ones there are"
_WHY = "the gateway says what is wrong with the message"
_CHOSEN = "the error is about the version that the gateway chose"
_MANAGEMENT = "not served unless it is opened; the gateway says what to use instead"
_UNLOADED = "what the snapshot says is served is not answered with Triton's unknown model"
KNOWN = {  # every difference between the gateway and Triton, with its reason
    "ServerLive: garbage": "the gateway answers itself, without reading what says nothing",
    "ServerReady: garbage": "the gateway answers itself, without reading what says nothing",
    "ModelReady: version abc": "a label that does not exist is not ready",
    "ModelMetadata: version abc": _LABEL,
    "ModelConfig: version abc": _LABEL,
    "ModelStatistics: version abc": _LABEL,
    "ModelInfer: version abc": _LABEL,
    "ModelStreamInfer: version abc": _LABEL,
    "garbage": _WHY,
    "a message that is cut off": _WHY,
    "a field number of zero": _WHY,
    "garbage in a question": _WHY,
    "no message": "UNIMPLEMENTED is what gRPC prescribes for a unary call without a message",
    "garbage on a stream": "Triton ends the stream as if nothing were wrong",
    "garbage behind an answer": "Triton ends the stream as if nothing were wrong",
    "an unknown model with triton_grpc_error": "the stream ends, as the caller has asked for",
    "an error of a version that the caller did not name": _CHOSEN,
    **{
        f"unloaded, {version}: {method}": _UNLOADED
        for version in ("no version", "version 1")
        for method in ("ModelInfer", "ModelStreamInfer", "ModelMetadata", "ModelConfig")
    },
    **{name: _MANAGEMENT for name in CALLS if name.startswith("management: ")},
}
