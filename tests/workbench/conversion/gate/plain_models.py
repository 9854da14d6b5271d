"""Models as plain numpy functions, and the gate run on two of them."""

import numpy as np

from serve.tensors.signature import ModelSignature, ModelTensor
from serve.workbench.conversion.gate import InputSamples, run_gate
from serve.workbench.conversion.request import ConversionRequest

WEIGHTS = np.random.default_rng(7).standard_normal((4, 3)).astype(np.float32)


def signature(inputs, outputs):
    """`{"x": ("FP32", (-1, 4))}` for each of both."""
    return ModelSignature(
        "onnx",
        *(
            tuple(ModelTensor(name, *of) for name, of in tensors.items())
            for tensors in (inputs, outputs)
        ),
    )


DENSE = signature({"x": ("FP32", (-1, 4))}, {"y": ("FP32", (-1, 3))})


def y_of(compute):
    """A model that computes its output `y` from its input `x`."""
    return lambda inputs: {"y": compute(inputs["x"])}


def bent(x):
    """tanh(x·W), in float32."""
    return np.tanh(x @ WEIGHTS)


dense = y_of(bent)


def off_by(size):
    """The same, wrong by so much everywhere."""
    return y_of(lambda x: bent(x) + np.float32(size))


def samples_of(x):
    """The user's samples of `x`."""
    return InputSamples({"x": x}, {"x": 1}, len(x), True)


def softmax(scores):
    """By the last axis."""
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def judge(
    source,
    converted,
    expected=DENSE,
    found=None,
    *,
    samples=None,
    labelled=None,
    check=None,
    tell=lambda *_, **__: None,
    division=None,
    **asked,
):
    """What the gate says; `check` is the step of precision."""
    return run_gate(
        source,
        converted,
        expected=expected,
        found=found or expected,
        request=ConversionRequest("model", **asked),
        samples=samples,
        labelled=labelled,
        precision=check,
        tell=tell,
        division=division,
    )


def step(verdict, name):
    """The step of that name."""
    (found,) = (one for one in verdict.steps if one.step == name)
    return found


def code(verdict):
    """The code of the first step that did not pass; empty when all did."""
    return next((one.code for one in verdict.steps if not one.passed), "")
