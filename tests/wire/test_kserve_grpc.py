"""KServe v2 over gRPC: which methods of Triton's service the gateway serves."""

import pytest
from refusals import refusal
from tritonclient.grpc import service_pb2

from serve.core.calls import Verb
from serve.core.errors import BadVersion, NotHere, NotServed
from serve.wire.kserve_grpc import (
    SERVER_LIVE,
    SERVER_READY,
    method_of,
    parse,
    selector_of,
    stream_error,
)

SERVICE = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
METHODS = {f"/{SERVICE.full_name}/{method.name}" for method in SERVICE.methods}
VERBS = [verb for verb in Verb if not verb.startswith(("generate", "management"))]


def test_the_method_of_a_verb_is_one_of_tritons_and_leads_back_to_it() -> None:
    for verb in VERBS:
        assert method_of(verb) in METHODS, verb
        assert parse(method_of(verb)) is verb, verb


def test_what_is_not_served_is_said_to_be_so_for_the_rest_of_tritons_service() -> None:
    served = {method_of(verb) for verb in VERBS} | {SERVER_LIVE, SERVER_READY}
    assert served < METHODS
    for method in METHODS - served:
        with pytest.raises(NotServed, match=method.rpartition("/")[2]) as caught:
            parse(method)
        assert "--allow-management" in caught.value.try_this


def test_methods_of_other_services_are_not_here() -> None:
    other = ("", "/", "ModelInfer", "/x.Y/Z", "/inference.Other/ModelInfer")
    for method in (*other, f"/{SERVICE.full_name}/X"):
        refusal(NotHere, parse, method)


def test_the_error_of_one_request_is_what_triton_writes() -> None:
    for request_id in (b"", b"7", "größe".encode()):
        said = service_pb2.ModelStreamInferResponse.FromString(stream_error("größe", request_id))
        assert said.error_message == "größe", request_id
        assert said.infer_response == service_pb2.ModelInferResponse(id=request_id.decode())


def test_a_version_is_read_as_triton_reads_it_or_is_a_label() -> None:
    for version, selected in (
        *(("", ""), ("2", "2"), ("02", "02"), (" 2", "2"), ("\t\n\v\f\r +2", "2"), ("2abc", "2")),
        *(("2.9", "2"), ("2 3", "2"), ("2\0", "2"), ("-0", "0")),
        *(("stable", "stable"), ("_2", "_2"), ("٣", "٣")),
    ):
        assert selector_of(version) == selected, version


UNREAD = "failed to get model version from specified version string '{}' (details: stol), "
BELOW = "invalid model version specified '{}' , "


def test_what_starts_like_a_number_and_is_none_is_refused_in_tritons_words() -> None:
    for said, versions in (
        (BELOW, ("-1", "-9223372036854775808")),
        (UNREAD, ("-9223372036854775809", "-" + "9" * 5000, "-", " ", " abc", "+-1")),
    ):
        for version in versions:
            error = refusal(BadVersion, selector_of, version)
            assert str(error) == said.format(version) + "version should be an integral value > 0"
