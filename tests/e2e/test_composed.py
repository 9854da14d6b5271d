"""Ensembles and models that call others: what their parts refuse does not repeat the whole."""

from concurrent.futures import ThreadPoolExecutor

import harness
import pytest
import repositories

pytestmark = [pytest.mark.triton, pytest.mark.slow]

CALLS = 40

SLOW = """
import time
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        time.sleep(0.02 * len(requests))
        x = [pb.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb.InferenceResponse([pb.Tensor("y", each)]) for each in x]
"""

# Passes the error of the model that it calls on, as UNAVAILABLE.
CALLING = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, args):
        self.log = open({log!r}, "a", buffering=1)

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        self.log.write(request.request_id() + "\\n")
        x = pb.get_input_tensor_by_name(request, "x")
        part = pb.InferenceRequest(model_name="full", requested_output_names=["y"], inputs=[x])
        answer = part.exec()
        if answer.has_error():
            said = answer.error().message()
            return pb.InferenceResponse([], pb.TritonError(said, pb.TritonError.UNAVAILABLE))
        return pb.InferenceResponse([pb.get_output_tensor_by_name(answer, "y")])
"""

# One call is executed, one waits, and the others are refused.
ONE_WAITS = "dynamic_batching { default_queue_policy { max_queue_size: 1 } }"
FOUR = "instance_group [{ count: 4 kind: KIND_CPU }]"


def test_what_a_part_refuses_is_not_executed_again(gateway, tmp_path):
    models, logs = tmp_path / "models", {}
    for name, part in (("ensemble", "counting"), ("calling", "calling")):
        logs[name] = tmp_path / f"{name}.log"
        logs[name].touch()
        code = CALLING if name == "calling" else repositories.COUNTING
        more = FOUR if name == "calling" else ""
        repositories.python_model(models, part, code.format(log=str(logs[name])), more=more)
    repositories.python_model(models, "full", SLOW, more=ONE_WAITS)
    repositories.ensemble(models, "ensemble", "counting", "full")
    for config in models.glob("*/config.pbtxt"):  # queues have limits where calls are batched
        batched = config.read_text().replace("max_batch_size: 0", "max_batch_size: 1")
        config.write_text(batched)
    repositories.serve(gateway, models)
    for name, log in logs.items():
        executed_once(gateway, name, log)


def executed_once(gateway, name, log):
    url = f"http://{gateway.http}/v2/models/{name}/infer"
    body = repositories.request()
    body["inputs"][0]["shape"] = [1, 2]

    def call(number):
        return harness.request(url, "POST", body | {"id": f"c{number}"})

    with ThreadPoolExecutor(CALLS) as threads:
        answers = list(threads.map(call, range(CALLS)))
    refused = [said for status, said in answers if status == 503]
    assert {status for status, _ in answers} == {200, 503}, answers
    assert all("Exceeds maximum queue size" in said["error"] for said in refused)
    executed = log.read_text().split()
    assert sorted(executed) == sorted(set(executed)), "a call was executed twice"
