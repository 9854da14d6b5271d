"""The gateway and Triton hear the same raw gRPC calls, and have to say the same, to the byte.

Compared are status, details, messages and their order, initial metadata, and the names of trailing
metadata (the gateway adds `servegate-…`). `KNOWN` is the whole list of differences, with reasons; a
difference that is on the list and no longer occurs fails, too.
"""

import time
from collections.abc import Iterator

import pytest
from tritonclient.grpc import InferenceServerClient

from .conftest import BareTritonFactory, load
from .fronting import front
from .grpc_calls import CALLS
from .grpc_models import MODELS
from .grpc_requests import infer, stream, unary
from .raw_grpc import PATIENCE, Heard, make

pytestmark = pytest.mark.triton

_LABEL = "a word is a label to the gateway, and it says which ones there are"
_WHY = "the gateway says what is wrong with the message"
_CHOSEN = "the error is about the version that the gateway chose"
_MANAGEMENT = "not served unless it is opened; the gateway says what to use instead"
_UNLOADED = "what the snapshot says is served is not answered with Triton's unknown model"
KNOWN = {
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


@pytest.fixture(scope="module")
def beside(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """A Triton, and the gateway in front of it."""
    triton = bare_triton_factory()
    for model in MODELS:
        model.write(triton.repository)
        load(triton, model.name)
    with InferenceServerClient(triton.grpc) as client:
        client.unload_model("gone")
        end = time.monotonic() + PATIENCE
        while client.is_model_ready("gone") or not client.is_server_ready():
            assert time.monotonic() < end, "it is not unloaded"
    with front(tmp_path_factory.mktemp("front"), [triton], MODELS) as running:
        yield triton.grpc, running.grpc


def told(heard: Heard) -> str:
    """An answer as people can compare it."""
    return "\n".join(
        (
            f"status {heard.code}: {heard.details}",
            *(f"message {message[:600]!r}" for message in heard.messages),
            f"initial {heard.initial}",
            f"trailing {heard.keys}",
        )
    )


@pytest.mark.parametrize("name", CALLS)
def test_a_call_is_answered_as_triton_answers_it(beside: tuple[str, str], name: str) -> None:
    directly, through = (make(CALLS[name], address) for address in beside)
    same = (directly, directly.keys) == (through, through.keys)
    if name in KNOWN:
        assert not same, f"no difference any more: {KNOWN[name]}"
    else:
        assert told(through) == told(directly)
        assert same


@pytest.mark.parametrize("is_stream", [False, True])
def test_a_deadline_that_passes_has_the_status_that_it_has_directly(
    beside: tuple[str, str], is_stream: bool
) -> None:
    """The words may be those of the client's own library, when it is the first to notice."""
    request = infer(parameters={"seconds": 1.0})
    call = unary("ModelInfer", request, timeout=0.3)
    if is_stream:
        call = stream(request, timeout=0.3)
    codes = [make(call, address).code for address in beside]
    assert codes == [4, 4]
