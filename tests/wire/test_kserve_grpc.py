"""KServe v2 over gRPC: which methods of Triton's service the gateway serves."""

import pytest
from tritonclient.grpc import service_pb2

from serve.core.calls import Verb
from serve.core.errors import NotHere, NotServed
from serve.wire.kserve_grpc import SERVER_LIVE, SERVER_READY, method_of, parse, stream_error

SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
METHODS = {f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods}


@pytest.mark.parametrize("verb", Verb)
def test_the_method_of_a_verb_is_one_of_tritons_and_leads_back_to_it(verb: Verb) -> None:
    assert method_of(verb) in METHODS
    assert parse(method_of(verb)) is verb


def test_what_is_not_served_is_said_to_be_so_for_the_rest_of_tritons_service() -> None:
    served = {method_of(verb) for verb in Verb} | {SERVER_LIVE, SERVER_READY}
    assert served < METHODS
    for method in METHODS - served:
        with pytest.raises(NotServed, match=method.rpartition("/")[2]):
            parse(method)


@pytest.mark.parametrize(
    "method", ["", "/", "ModelInfer", "/grpc.health.v1.Health/Check", "/inference.Other/ModelInfer"]
)
def test_methods_of_other_services_are_not_here(method: str) -> None:
    with pytest.raises(NotHere):
        parse(method)


@pytest.mark.parametrize("request_id", [b"", b"7", "größe".encode()])
def test_the_error_of_one_request_is_what_triton_writes(request_id: bytes) -> None:
    said = service_pb2.ModelStreamInferResponse.FromString(stream_error("größe", request_id))
    assert said.error_message == "größe"
    assert said.infer_response == service_pb2.ModelInferResponse(id=request_id.decode())
