"""TensorFlow Serving's REST API on the data port."""

import dataclasses
import gzip
import itertools
import json
from types import MappingProxyType

from builders import snapshot, target, view
from listeners.http_messages import chunked, reply, request
from listeners.http_replicas import Received, answering
from listeners.tfserving_scene import (
    ONE,
    Front,
    Inference,
    config,
    gives_its_input,
    in_front,
    inference,
    model,
    outputs_reply,
)

from serve.core.access import ApiKey, Role
from serve.tensors.tfserving_tensors import LARGE, RawTensor, pack, unpack

ROWS = {"instances": [[1.0, 2.0], [3.0, 4.0]]}
TWICE = {"predictions": [[1.0, 2.0], [3.0, 4.0]]}
PREDICT = "/v1/models/m:predict"
TWO = snapshot(view(target(1, "a", "b")))
KEY, WORDS = ApiKey.create(Role.PREDICTOR, ("m",))
GUARDED = dataclasses.replace(ONE, keys=MappingProxyType({KEY.id: KEY}), guarded=True)


# --- predict ----------------------------------------------------------------------------------


@in_front()
async def test_rows_become_one_binary_infer_call_and_its_answer_rows(front: Front) -> None:
    front.a.script = model(gives_its_input)
    assert await front.post(PREDICT, ROWS) == (200, TWICE)
    asked, sent = front.a.requests
    assert asked.line == "GET /v2/models/m/versions/1/config HTTP/1.1"
    assert sent.line == "POST /v2/models/m/versions/1/infer HTTP/1.1"
    tensor = inference(sent).inputs["x"]
    assert (tensor.datatype, tensor.shape) == ("FP32", (2, 2))
    assert list(unpack(tensor)) == [1.0, 2.0, 3.0, 4.0]
    columns = {"signature_name": "serving_default", "inputs": {"x": [[1, 2]]}}
    assert await front.post(PREDICT, columns) == (200, {"outputs": [[1.0, 2.0]]})


@in_front()
async def test_a_version_is_chosen_by_number_by_label_or_by_the_route(front: Front) -> None:
    front.a.script = model(gives_its_input)
    body = json.dumps(ROWS).encode()
    for part, number, by in (
        ("", 1, "split"),
        ("/versions/2", 2, "number"),
        ("/labels/stable", 1, "label:stable"),
    ):
        answer = await front.ask(request(body, path=f"/v1/models/m{part}:predict"))
        assert answer.status == 200
        assert answer.header("servegate-version") == f"{number}; by={by}; generation=1"
        assert front.a.lines[-1] == f"POST /v2/models/m/versions/{number}/infer HTTP/1.1"


@in_front()
async def test_a_signature_is_read_once_and_again_after_triton_has_refused(front: Front) -> None:
    front.a.script = model(gives_its_input)
    await front.post(PREDICT, ROWS)
    await front.post(PREDICT, ROWS)
    assert sum(line.startswith("GET") for line in front.a.lines) == 1
    front.a.script = answering(reply(b'{"error":"unexpected shape"}', status=400))
    assert await front.post(PREDICT, ROWS) == (400, {"error": "unexpected shape"})
    front.a.script = model(
        lambda asked: {"y": asked.inputs["n"]}, known=config({"n": "INT64"}, {"y": "INT64"})
    )
    whole = {"instances": [[1, 2]]}
    assert await front.post(PREDICT, whole) == (200, {"predictions": [[1, 2]]})


@in_front(TWO)
async def test_a_call_that_was_not_executed_goes_on_to_another_replica(front: Front) -> None:
    refused = answering(reply(b'{"error":"Server not ready"}', status=503))
    serving = model(gives_its_input)

    async def stopping(call: Received) -> None:
        await (serving if call.line.startswith("GET") else refused)(call)

    front.replicas[0].script = front.replicas[1].script = serving
    await front.post(PREDICT, ROWS)
    front.replicas[0].script = stopping
    for _ in range(4):
        assert await front.post(PREDICT, ROWS) == (200, TWICE)
    assert front.plane.count("servegate_retries_total", model="m", reason="refused") > 0


@in_front()
async def test_every_call_is_counted_and_written_down_with_its_id_and_its_bytes(
    front: Front,
) -> None:
    front.a.script = model(gives_its_input)
    body = json.dumps(ROWS).encode()
    good = await front.ask(request(body, "X-Request-Id: r1", path=PREDICT))
    bad = await front.ask(request(b"{", "X-Request-Id: r2", path=PREDICT))
    await front.get("/v1/models/m", "X-Request-Id: r3")
    await front.get("/v1/models/m/metadata", "X-Request-Id: r4")
    await front.get("/v1/models/nope", "X-Request-Id: r5")
    await front.get("/v1/models", "X-Request-Id: r6")
    assert bad.status == 400
    assert [(account.request_id, code) for _, code, account in front.log.lines] == [
        ("r1", "200"),
        ("r2", "bad_request"),
        ("r3", "200"),
        ("r4", "200"),
        ("r5", "not_found"),
    ]
    first = front.log.lines[0][2]
    assert (first.received, first.answered) == (len(body), len(good.body))
    assert first.peer.startswith("127.0.0.1:")
    labels = {"model": "m", "version": "1", "route": "split", "protocol": "http"}
    assert front.plane.count("servegate_calls_total", **labels, verb="infer", code="200") == 1
    unnamed = dict.fromkeys(("model", "version", "route"), "") | {"protocol": "http"}
    assert front.plane.count("servegate_errors_total", **unnamed, error="bad_request") == 1


@in_front()
async def test_headers_of_the_call_go_on_and_those_of_its_body_do_not(front: Front) -> None:
    front.a.script = model(gives_its_input)
    headers = (
        "X-Request-Id: me-1",
        "traceparent: 00-ab-cd-01",
        "Accept-Encoding: gzip",
        "Content-Type: application/json",
        "Authorization: Basic eA==",
    )
    body = json.dumps(ROWS).encode()
    answer = await front.ask(request(body, *headers, path=PREDICT))
    assert answer.header("servegate-request-id") == "me-1"
    made = front.a.requests[-1]
    assert made.header("x-request-id") == "me-1"
    assert made.header("traceparent") == "00-ab-cd-01"
    assert made.header("authorization") == "Basic eA=="
    assert made.header("accept-encoding") is None
    assert made.header("content-type") == "application/octet-stream"


@in_front(snapshot(view(target(1, "a", physical="m--12345678"))))
async def test_a_version_with_another_name_in_triton_is_told_by_its_own(front: Front) -> None:
    front.a.script = model(gives_its_input)
    assert await front.post(PREDICT, ROWS) == (200, TWICE)
    assert front.a.lines[-1] == "POST /v2/models/m--12345678/versions/1/infer HTTP/1.1"
    front.a.script = answering(reply(b'{"error":"model \'m--12345678\' is busy"}', status=400))
    assert (await front.post(PREDICT, ROWS))[1] == {"error": "model 'm' is busy"}


# --- bodies -----------------------------------------------------------------------------------


@in_front()
async def test_a_body_may_come_in_chunks_or_compressed(front: Front) -> None:
    front.a.script = model(gives_its_input)
    plain = json.dumps(ROWS).encode()
    answer = await front.ask(chunked(plain[:9], plain[9:], path=PREDICT))
    assert (answer.status, json.loads(answer.body)) == (200, TWICE)
    small = gzip.compress(plain)
    assert await front.post(PREDICT, small, "Content-Encoding: gzip") == (200, TWICE)
    status, _ = await front.post(PREDICT, small[:-9], "Content-Encoding: gzip")
    assert status == 400
    assert (await front.post(PREDICT, plain, "Content-Encoding: br"))[0] == 400


@in_front(body=1000, inflated=1000)
async def test_a_body_that_is_or_grows_beyond_the_limit_is_refused(front: Front) -> None:
    for data in (request(b"x" * 1001, path=PREDICT), chunked(b"x" * 900, b"x" * 900, path=PREDICT)):
        answer = await front.ask(data)
        assert (answer.status, answer.code) == (413, "body_too_large")
    data = gzip.compress(b" " * 100_000)
    status, said = await front.post(PREDICT, data, "Content-Encoding: gzip")
    assert status == 413 and "inflated" in said["error"]
    assert front.a.requests == [] and front.listener.held == 0


@in_front(body_idle=0.05, in_flight=500)
async def test_a_body_that_does_not_come_or_finds_no_room_is_refused(front: Front) -> None:
    for size, status, code in ((1, 408, "too_slow"), (600, 429, "no_room")):
        answer = await front.ask(request(b"x" * size, path=PREDICT, length=max(size, 100)))
        assert (answer.status, answer.code) == (status, code)


@in_front(in_flight=64 << 20)
async def test_a_document_weighs_more_than_its_bytes(front: Front) -> None:
    """Eight megabytes of empty lists would be 300 MB of lists."""
    front.a.script = model(gives_its_input)
    body = b'{"instances":[' + b"[]," * 2_600_000 + b"[]]}"
    answer = await front.ask(request(body, path=PREDICT))
    assert (answer.status, answer.code) == (413, "conversion_too_large")
    assert "raise the setting max_in_flight_bytes" in json.loads(answer.body)["error"]
    assert front.a.requests == [] and front.listener.held == 0
    assert await front.post(PREDICT, ROWS) == (200, TWICE)


@in_front()
async def test_a_large_document_is_converted_in_a_thread_and_checked(front: Front) -> None:
    front.a.script = model(gives_its_input)
    padding = " " * LARGE  # makes a document a large one
    for rows, said in (
        ("[1,2],[1]", "Expecting tensor size: 2 but got: 1"),
        ('[1,2],[1,"a"]', "element: 1 of"),
        ("[1,2],[1,,2]", "JSON Parse error"),
        ("[1,2],[1,1e]", "JSON Parse error"),
        ("[1,2],[1,2]]", "JSON Parse error"),
    ):
        status, answer = await front.post(PREDICT, f'{{"instances":[{rows}]}}{padding}'.encode())
        assert (status, said in answer["error"]) == (400, True), answer
    many = {"instances": [[0.5, 0.25]] * (LARGE // 10)}
    assert len(json.dumps(many)) > LARGE
    status, answer = await front.post(PREDICT, many)
    assert (status, answer["predictions"]) == (200, many["instances"])


# --- what is asked for is not there -----------------------------------------------------------


@in_front()
async def test_what_is_not_there_or_malformed_is_said_in_tensorflow_servings_words(
    front: Front,
) -> None:
    not_found = "Servable not found for request: "
    unknown_label = "Unrecognized servable version label: "
    for path, status, said in (
        ("nope", 404, f"{not_found}Latest(nope)"),
        ("m/versions/9", 404, f"{not_found}Specific(m, 9)"),
        ("m/labels/x", 400, f"{unknown_label}x"),
        ("m/labels/1", 400, f"{unknown_label}1"),
        ("%6d", 400, "Malformed request: POST /v1/models/%6d:predict"),
    ):
        answer = await front.post(f"/v1/models/{path}:predict", ROWS)
        assert answer == (status, {"error": said}), path
    assert await front.get("/v1/models") == (400, {"error": "Missing model name in request."})
    for name, said in (
        ("other", 'Serving signature name: "other" not found in signature def'),
        (100, "'signature_name' key must be a string value."),
    ):
        status, document = await front.post(PREDICT, {"signature_name": name, **ROWS})
        assert status == 400 and said in document["error"]
    assert [line for line in front.a.lines if "infer" in line] == []


@in_front(GUARDED)
async def test_a_key_is_needed_and_what_it_may_not_see_does_not_exist(front: Front) -> None:
    front.a.script = model(gives_its_input)
    ours = f"Authorization: Bearer {WORDS}"
    answer = await front.ask(request(json.dumps(ROWS).encode(), path=PREDICT))
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert [(await front.get(f"/v1/models/m{end}"))[0] for end in ("", "/metadata")] == [401, 401]
    assert await front.post(PREDICT, ROWS, ours) == (200, TWICE)
    assert all(made.header("authorization") is None for made in front.a.requests)
    for part, end in itertools.product(
        ("", "/versions/1", "/labels/stable"), (":predict", "", "/metadata")
    ):
        told = []
        for name in ("hidden", "nope"):
            path = f"/v1/models/{name}{part}{end}"
            asking = front.post(path, b"[", ours) if end == ":predict" else front.get(path, ours)
            status, said = await asking
            told.append((status, said["error"].replace(name, "…")))
        assert told[0] == told[1] and told[0][0] in (400, 404), path


# --- status and metadata ----------------------------------------------------------------------

HELD = snapshot(
    view(target(1, "a"), target(3, "a"), labels={"stable": 1, "next": 4}, split="3=100")
)


def status(version: int, state: str = "AVAILABLE") -> dict[str, object]:
    told = {"error_code": "OK", "error_message": ""}
    return {"version": str(version), "state": state, "status": told}


@in_front(HELD)
async def test_the_status_of_all_versions_or_of_one_is_told(front: Front) -> None:
    for path, versions in (
        ("m", [status(4, "LOADING"), status(3), status(1)]),
        ("m/versions/1", [status(1)]),
        ("m/labels/stable", [status(1)]),
    ):
        answer = await front.get(f"/v1/models/{path}")
        assert answer == (200, {"model_version_status": versions}), path
    missing = {"error": "Could not find version 2 of model m"}
    assert await front.get("/v1/models/m/versions/2") == (404, missing)
    assert (await front.get("/v1/models/m/labels/nope"))[0] == 400


@in_front(snapshot(view(failed=True, labels={"stable": 2}), replicas=("a",)))
async def test_a_version_that_could_not_be_loaded_has_come_to_its_end(front: Front) -> None:
    _, told = await front.get("/v1/models/m")
    [one] = told["model_version_status"]
    assert (one["version"], one["state"]) == ("2", "END")
    assert one["status"]["error_code"] == "UNAVAILABLE"


@in_front()
async def test_the_metadata_are_the_models_signature(front: Front) -> None:
    front.a.script = model(gives_its_input, known=config({"x": "FP32"}, {"y": "STRING"}))
    sizes = [{"size": "-1", "name": ""}, {"size": "2", "name": ""}]
    shape = {"tensor_shape": {"dim": sizes, "unknown_rank": False}}
    signature = {
        "inputs": {"x": {"dtype": "DT_FLOAT", "name": "x:0", **shape}},
        "outputs": {"y": {"dtype": "DT_STRING", "name": "y:0", **shape}},
        "method_name": "tensorflow/serving/predict",
        "defaults": {},
    }
    signatures = {"signature_def": {"signature_def": {"serving_default": signature}}}
    for part, version in (("", "1"), ("/versions/2", "2"), ("/labels/stable", "1")):
        spec = {"name": "m", "signature_name": "", "version": version}
        answer = await front.get(f"/v1/models/m{part}/metadata")
        assert answer == (200, {"model_spec": spec, "metadata": signatures})


# --- classify and regress ---------------------------------------------------------------------


def scores(asked: Inference) -> dict[str, RawTensor]:
    """Two classes; with Triton's classification extension they have names."""
    [output] = asked.head.get("outputs", [{"name": "y"}])
    count = len(asked.inputs["x"].raw) // 8
    if "classification" in output.get("parameters", {}):
        return {"y": RawTensor("BYTES", (1, 2), pack([b"0.75:1:dog", b"0.25:0:a:cat"], "BYTES"))}
    return {"y": RawTensor("FP32", (count, 2), pack([0.25, 0.75] * count, "FP32"))}


EXAMPLES = {"context": {"x": [1, 2]}, "examples": [{}, {"other": "y"}]}


@in_front()
async def test_classes_are_pairs_of_label_and_score_in_their_order(front: Front) -> None:
    labelled = config({"x": "FP32"}, {"y": "FP32"}, y={"label_filename": "labels.txt"})
    front.a.script = model(scores, known=labelled)
    pairs = [["a:cat", 0.25], ["dog", 0.75]]
    for _ in range(2):
        answer = await front.post("/v1/models/m:classify", EXAMPLES)
        assert answer == (200, {"results": [pairs, pairs]})
    assert len(front.a.requests) == 4  # the configuration, the labels, and two calls
    front.a.script = answering(reply(b'{"error":"x"}', status=400))
    await front.post("/v1/models/m:classify", EXAMPLES)
    front.a.script = model(scores)
    answer = await front.post("/v1/models/m:classify", {"examples": [{"x": [1, 2]}]})
    assert answer == (200, {"results": [[["", 0.25], ["", 0.75]]]})


@in_front()
async def test_a_classifier_may_have_an_output_of_labels(front: Front) -> None:
    def both(asked: Inference) -> dict[str, RawTensor]:
        names = RawTensor("BYTES", (1, 2), pack([b"cat", b"dog"], "BYTES"))
        return {"scores": scores(asked)["y"], "classes": names}

    front.a.script = model(
        lambda asked: both(Inference({}, asked.inputs)),
        known=config({"x": "FP32"}, {"classes": "STRING", "scores": "FP32"}),
    )
    answer = await front.post("/v1/models/m:classify", {"examples": [{"x": [1, 2]}]})
    assert answer == (200, {"results": [[["cat", 0.25], ["dog", 0.75]]]})


@in_front()
async def test_a_regression_gives_a_number_for_each_example(front: Front) -> None:
    def half_plus_two(asked: Inference) -> dict[str, RawTensor]:
        values = [value / 2 + 2 for value in unpack(asked.inputs["x"])]
        return {"y": RawTensor("FP32", (len(values), 1), pack(values, "FP32"))}

    front.a.script = model(
        half_plus_two, known=config({"x": "FP32"}, {"y": "FP32"}, x={"dims": [1]})
    )
    asked = {"signature_name": "tensorflow/serving/regress", "examples": [{"x": 80}, {"x": [1.0]}]}
    assert await front.post("/v1/models/m:regress", asked) == (200, {"results": [42.0, 2.5]})


@in_front()
async def test_a_model_that_is_no_classifier_or_regression_says_why(front: Front) -> None:
    front.a.script = model(gives_its_input)
    one = {"examples": [{"x": [1, 2]}]}
    for verb, asked, sentence in (
        ("regress", one, "Expected output Tensor shape to be either [batch_size] or"),
        ("classify", {}, "key 'examples' is expected and was not found"),
        ("classify", {"examples": 5}, "Expecting 'examples' value to be an list/array"),
        ("classify", {"examples": []}, "'examples' value is an empty array"),
        ("classify", {"examples": [5]}, "Example must be JSON object but got JSON Number"),
        ("classify", {"examples": [{}]}, "Feature: x (data type: float) is required but could not"),
        ("classify", {"examples": [{"x": [[1]]}]}, "unexpected JSON type: Array"),
        ("classify", {"examples": [{"x": [1]}]}, "values size: 1 but output shape: [2]"),
        ("classify", {"context": {"x": 1}, **one}, "must not appear in 'examples': x"),
    ):
        status, said = await front.post(f"/v1/models/m:{verb}", asked)
        assert status == 400 and sentence in said["error"], said
    front.a.script = answering(reply(b"{}", status=400))
    await front.post(PREDICT, ROWS)
    front.a.script = model(gives_its_input, known=config({"x": "FP32"}, {"y": "FP32", "z": "FP32"}))
    for verb in ("classify", "regress"):
        status, said = await front.post(f"/v1/models/m:{verb}", one)
        assert status == 400 and "Try: :predict" in said["error"]


@in_front()
async def test_an_unreadable_answer_of_triton_is_an_error_of_the_server(front: Front) -> None:
    broken = outputs_reply({"y": RawTensor("FP32", (1, 2), b"1234")})
    serving = model(gives_its_input)

    async def cutting(call: Received) -> None:
        await (serving if call.line.startswith("GET") else answering(broken))(call)

    front.a.script = cutting
    status, said = await front.post(PREDICT, ROWS)
    assert status == 500 and "Triton's response cannot be read" in said["error"]
