"""Few models for many questions: what the differential suite over HTTP asks for."""

import dataclasses

from .fronting import Model

DATATYPES = (
    *("BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64"),
    *("FP16", "BF16", "FP32", "FP64", "STRING"),
)
LABELS = {"labels.txt": "zero\none\ntwo\n"}

# Gives each input back; and in `asked` what Triton made of the request's id and parameters.
ANY = """
import json
import numpy as np
import triton_python_backend_utils as utils
class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(one) for one in requests]
    def answer(self, one):
        outputs = []
        for each in one.inputs():
            name = "y" + each.name()[1:]
            if name == "yBF16":  # numpy does not know it
                outputs.append(utils.Tensor.from_dlpack(name, each.to_dlpack()))
            else:
                outputs.append(utils.Tensor(name, each.as_numpy()))
        asked = [one.request_id(), one.correlation_id(), json.loads(one.parameters() or "{}")]
        outputs.append(utils.Tensor("asked", np.array([json.dumps(asked)], np.object_)))
        wanted = one.requested_output_names()
        return utils.InferenceResponse([one for one in outputs if one.name() in wanted])
"""
# Answers x times with 0, 1, …; a negative x fails, after so many answers less one.
REPEAT = """
import numpy as np
import triton_python_backend_utils as utils
FINAL = utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL
class TritonPythonModel:
    def execute(self, requests):
        for one in requests:
            x = int(utils.get_input_tensor_by_name(one, "x").as_numpy()[0])
            sender = one.get_response_sender()
            for number in range(x if x >= 0 else -x - 1):
                y = utils.Tensor("y", np.array([number], np.int32))
                sender.send(utils.InferenceResponse([y]))
            if x < 0:
                sender.send(utils.InferenceResponse(error=utils.TritonError("it has failed")))
            sender.send(flags=FINAL)
"""
# Adds its version to what comes.
ADD = """
import numpy as np
import triton_python_backend_utils as utils
class TritonPythonModel:
    def initialize(self, args):
        self.version = np.int32(args["model_version"])
    def execute(self, requests):
        xs = [utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [utils.InferenceResponse([utils.Tensor("y", x + self.version)]) for x in xs]
"""
INSTANCE = 'backend: "python"\ninstance_group { kind: KIND_CPU count: 1 }\n'


def tensor(role: str, name: str, datatype: str, dims: str = "[ -1 ]", more: str = "") -> str:
    return f'{role} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} {more} }}\n'


def of_all_datatypes() -> str:
    labels = 'label_filename: "labels.txt"'
    inputs = (tensor("input", f"x{one}", one, more="optional: true") for one in DATATYPES)
    outputs = (
        tensor("output", f"y{one}", one, more=labels if one == "FP32" else "") for one in DATATYPES
    )
    return INSTANCE + "".join((*inputs, *outputs)) + tensor("output", "asked", "STRING")


XY = INSTANCE + tensor("input", "x", "INT32", "[ 1 ]") + tensor("output", "y", "INT32", "[ 1 ]")
BATCH = "max_batch_size: 4\n"
# Waits for more until it is too late.
LATE = """dynamic_batching {
  preferred_batch_size: [ 4 ] max_queue_delay_microseconds: 50000
  default_queue_policy { timeout_action: REJECT default_timeout_microseconds: 1 }
}"""
GONE = Model("gone", ADD, XY)
HELD = (
    Model("any", ANY, of_all_datatypes(), files=LABELS),
    Model("repeat", REPEAT, XY + "model_transaction_policy { decoupled: true }"),
    Model("add", ADD, XY + BATCH + "version_policy { all {} }", (1, 2)),
    Model("late", ADD, XY + BATCH + LATE),
)
KNOWN = (*HELD, dataclasses.replace(GONE, versions=()))  # to the gateway: `gone` is not ready
