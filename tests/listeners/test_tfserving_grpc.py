"""TensorFlow Serving's gRPC API; messages are written and read by hand, by another table."""

import dataclasses
import struct
from functools import partial
from types import MappingProxyType

import grpc
import tfserving_bytes as tf
from builders import until
from listeners.http_messages import reply
from listeners.http_replicas import answering
from listeners.tfserving_scene import (
    ONE,
    Front,
    config,
    gives_its_input,
    in_front,
    inference,
    model,
)

from serve.core.access import ApiKey, Role
from serve.tensors.tfserving_tensors import RawTensor
from serve.wire.tfserving_messages import messages

PREDICT = "/tensorflow.serving.PredictionService/Predict"
METADATA = "/tensorflow.serving.PredictionService/GetModelMetadata"
STATUS = "/tensorflow.serving.ModelService/GetModelStatus"
NOT_FOUND, INVALID, PRECONDITION, UNIMPLEMENTED = 5, 3, 9, 12
EXHAUSTED, INTERNAL, UNAUTHENTICATED = 8, 13, 16

X = tf.tensor(tf.FLOAT, [2, 2], tf.floats(1, 2, 3, 4))
KEY, WORDS = ApiKey.create(Role.PREDICTOR, ("m",))
GUARDED = dataclasses.replace(ONE, keys=MappingProxyType({KEY.id: KEY}), guarded=True)


def asks(spec: bytes, x: bytes = X) -> bytes:
    """A call to predict with one input."""
    return tf.predict_request(spec, x=x)


@in_front()
async def test_a_predict_call_is_answered_with_tensors_and_the_version(front: Front) -> None:
    front.a.script = model(gives_its_input)
    for spec, version, by in (
        (tf.spec("m", signature="serving_default"), 1, "split"),
        (tf.spec("m", version=2), 2, "number"),
        (tf.spec("m", label="stable"), 1, "label:stable"),
    ):
        request = tf.predict_request(spec, x=X)
        code, answer, trailers = await front.rpc(PREDICT, request, ("x-request-id", "me"))
        assert code == 0, answer
        assert tf.read(tf.mapped(answer, 1)["y"]) == tf.read(X)
        answered = tf.spec("m", version=version, signature="serving_default")
        assert tf.read(tf.one(answer, 2)) == tf.read(answered)
        assert trailers["servegate-version"] == f"{version}; by={by}; generation=1"
        assert trailers["servegate-request-id"] == "me"
        assert f"/versions/{version}/infer" in front.a.lines[-1]
        sent = inference(front.a.requests[-1])
        assert sent.inputs == {"x": RawTensor("FP32", (2, 2), struct.pack("<4f", 1, 2, 3, 4))}
    labels = {"model": "m", "version": "2", "route": "number", "protocol": "grpc"}
    count = front.plane.count
    await until(lambda: count("servegate_calls_total", **labels, verb="infer", code="OK") == 1)
    assert [(code, one.answered > 0, one.received > 0) for _, code, one in front.log.lines] == [
        ("OK", True, True)
    ] * 3


@in_front()
async def test_a_client_of_the_gateways_own_messages_says_the_same_bytes(front: Front) -> None:
    front.a.script = model(gives_its_input)
    request = messages().make("PredictRequest")
    request.model_spec.name = "m"
    request.model_spec.version_label = "stable"
    request.inputs["x"].dtype = tf.FLOAT
    request.inputs["x"].tensor_shape.dim.add(size=2)
    request.inputs["x"].tensor_shape.dim.add(size=2)
    request.inputs["x"].float_val.extend([1, 2, 3, 4])
    data = request.SerializeToString()
    assert tf.read(data) == tf.read(tf.predict_request(tf.spec("m", label="stable"), x=X))
    code, answer, _ = await front.rpc(PREDICT, data)
    response = messages().read("PredictResponse", answer)
    assert code == 0 and list(response.outputs["y"].float_val) == [1, 2, 3, 4]


@in_front()
async def test_outputs_may_be_chosen(front: Front) -> None:
    two = config({"x": "FP32"}, {"y": "FP32", "z": "FP32"})
    front.a.script = model(gives_its_input, known=two)
    code, answer, _ = await front.rpc(PREDICT, tf.predict_request(tf.spec("m"), "y", x=X))
    assert code == 0 and set(tf.mapped(answer, 1)) == {"y"}
    assert [one["name"] for one in inference(front.a.requests[-1]).head["outputs"]] == ["y"]
    for names, sentence in (
        (("w",), "output tensor alias not found in signature: w Outputs expected to be in the set"),
        (("y", "y"), "duplicate output tensor alias: y"),
    ):
        code, said, _ = await front.rpc(PREDICT, tf.predict_request(tf.spec("m"), *names, x=X))
        assert code == INVALID and said.decode().startswith(sentence)


@in_front()
async def test_what_is_wrong_is_said_with_tensorflow_servings_codes(front: Front) -> None:
    front.a.script = model(gives_its_input)
    other = tf.spec("m", signature="other")
    mismatch = "input size does not match signature: 1!=1 len({y}) != len({x}). "
    for request, code, sentence in (
        (asks(tf.spec("nope")), NOT_FOUND, "request: Latest(nope)"),
        (asks(tf.spec("m", version=9)), NOT_FOUND, "Specific(m, 9)"),
        (asks(tf.spec("m", version=-1)), NOT_FOUND, "Specific(m, -1)"),
        (asks(tf.spec("m", label="1")), INVALID, "version label: 1"),
        (asks(tf.spec("m", label="no")), INVALID, "Unrecognized servable version label: no"),
        (asks(other), PRECONDITION, 'Serving signature key "other" not found.'),
        (b"", INVALID, "Missing ModelSpec"),
        (asks(tf.spec("")), INVALID, "ModelSpec has no name specified."),
        (
            tf.predict_request(tf.spec("m"), y=X),
            INVALID,
            f"{mismatch}Sent extra: {{y}}. Missing but required: {{x}}.",
        ),
        (asks(tf.spec("m"), tf.tensor(8, [1])), INVALID, "data type 8"),
        (asks(tf.spec("m"), tf.tensor(1, [0, 0])), INVALID, "batch of input 'x' is empty"),
        (b"\xff", INTERNAL, "Unable to parse request"),
    ):
        said = await front.rpc(PREDICT, request)
        assert said[0] == code and sentence in said[1].decode(), said
    assert front.a.lines == ["GET /v2/models/m/versions/1/config HTTP/1.1"]
    front.a.script = answering(reply(b'{"error":"unexpected shape"}', status=400))
    told = await front.rpc(PREDICT, asks(tf.spec("m")))
    assert told[:2] == (INVALID, b"unexpected shape") and "servegate-error" not in told[2]


@in_front()
async def test_a_call_keeps_its_slot_when_its_client_has_left(front: Front) -> None:
    hand = front.a.by_hand()
    request = asks(tf.spec("m"))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{front.rpc_port}") as channel:
        asked = channel.unary_unary(PREDICT)(request)
        call = await hand.call()
        asked.cancel()
        labels = {"model": "m", "version": "1", "route": "split", "protocol": "grpc"}
        left = partial(front.plane.count, "servegate_errors_total", error="client_left", **labels)
        await until(lambda: left() == 1)
    assert front.plane.loads.total == 1
    call.write(reply())
    await until(lambda: not front.plane.loads.total)
    hand.done(call)


@in_front(in_flight=1 << 20)
async def test_a_small_message_cannot_make_a_large_tensor(front: Front) -> None:
    front.a.script = model(gives_its_input)
    huge = tf.tensor(tf.FLOAT, [1 << 20, 2], tf.floats(1))
    code, said, _ = await front.rpc(PREDICT, asks(tf.spec("m"), huge))
    assert code == EXHAUSTED and "max_in_flight_bytes" in said.decode()
    assert (await front.rpc(PREDICT, asks(tf.spec("m"))))[0] == 0


@in_front(GUARDED)
async def test_a_key_is_needed_and_what_it_may_not_see_does_not_exist(front: Front) -> None:
    front.a.script = model(gives_its_input)
    ours = ("authorization", f"Bearer {WORDS}")
    assert (await front.rpc(PREDICT, asks(tf.spec("m")), ours))[0] == 0
    assert all(made.header("authorization") is None for made in front.a.requests)
    for method, rest in ((PREDICT, b""), (METADATA, tf.sized(2, "signature_def")), (STATUS, b"")):
        told = []
        for name in ("hidden", "nope"):
            code, said, _ = await front.rpc(method, tf.sized(1, tf.spec(name)) + rest, ours)
            told.append((code, said.decode().replace(name, "…")))
        assert told[0] == told[1] and told[0][0] == NOT_FOUND
        assert (await front.rpc(method, tf.sized(1, tf.spec("m")) + rest))[0] == UNAUTHENTICATED


@in_front()
async def test_the_metadata_are_a_signature_in_an_any(front: Front) -> None:
    front.a.script = model(gives_its_input, known=config({"x": "FP32"}, {"y": "STRING"}))
    request = tf.sized(1, tf.spec("m", label="stable")) + tf.sized(2, "signature_def")
    code, answer, _ = await front.rpc(METADATA, request)
    assert code == 0
    assert tf.read(tf.one(answer, 1)) == tf.read(tf.spec("m", version=1))
    packed = tf.read(tf.mapped(answer, 2)["signature_def"])
    assert packed[1] == [b"type.googleapis.com/tensorflow.serving.SignatureDefMap"]
    [held] = packed[2]
    assert isinstance(held, bytes)
    signature = tf.mapped(held, 1)["serving_default"]
    shape = tf.shape([-1, 2])
    x, y = tf.mapped(signature, 1)["x"], tf.mapped(signature, 2)["y"]
    assert tf.read(x) == {1: [b"x:0"], 2: [tf.FLOAT], 3: [shape]}
    assert tf.read(y) == {1: [b"y:0"], 2: [tf.STRING], 3: [shape]}
    assert tf.one(signature, 3) == b"tensorflow/serving/predict"
    for fields, sentence in (
        (b"", "must specify at least one metadata_field"),
        (tf.sized(2, "x"), "Metadata field x is not supported"),
    ):
        code, said, _ = await front.rpc(METADATA, tf.sized(1, tf.spec("m")) + fields)
        assert code == INVALID and sentence in said.decode()


@in_front()
async def test_the_status_of_versions_is_told_and_some_methods_are_not_served(front: Front) -> None:
    code, answer, _ = await front.rpc(STATUS, tf.sized(1, tf.spec("m")))
    versions = [tf.read(one) for one in tf.read(answer)[1] if isinstance(one, bytes)]
    assert code == 0
    assert [(one[1], one[2]) for one in versions] == [([2], [30]), ([1], [30])]
    code, said, _ = await front.rpc(STATUS, tf.sized(1, tf.spec("m", version=7)))
    assert (code, said) == (NOT_FOUND, b"Could not find version 7 of model m")
    for name in ("Classify", "Regress", "MultiInference"):
        code, _, _ = await front.rpc(f"/tensorflow.serving.PredictionService/{name}", b"")
        assert code == UNIMPLEMENTED
