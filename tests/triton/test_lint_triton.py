"""Lint against a real Triton: what a rule calls an error, Triton refuses; what passes, loads."""

import json
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from serve.triton.canonical import canonical_text
from serve.triton.lint import RULES, LintSubject, Severity

from .conftest import BareTriton, BareTritonFactory, load
from .lint_cases import CASES, FILES, GOOD_ENSEMBLES, ONNX, OTHERS, onnx, subject
from .onnx_models import ONE_INSTANCE, identity, node, onnx_file, tensor

pytestmark = [pytest.mark.triton, pytest.mark.slow]

# What Triton 2.51 loads all the same: its meaning is a matter of luck, or only other things fail.
LOADS = {
    *("tensor-twice", "instance-count", "field-refused"),
    "instances-passive",  # and dies of the first call
    *("tensor-cycle", "input-overwritten", "step-itself"),
}
# A warm-up that fails while it runs: Triton 2.51 fails the load, or dies of SIGSEGV.
DEADLY = {"warmup-input-unknown", "warmup-batch-size"}
AT_ONCE = 4  # loads; many only wait for one process or another
BATCHED = identity("FP32", "batch", 3)
TWO = onnx_file(
    [tensor("x", "FP32", "batch", 3), tensor("w", "FP32", "batch", 3)],
    [tensor("y", "FP32", "batch", 3)],
    node("Add", "x w", "y"),
)


def errors() -> list[tuple[str, LintSubject]]:
    """Failing cases around the file that gives x back as y, and ensembles."""
    wrong = {rule.name for rule in RULES if rule.severity is Severity.ERROR}
    return [
        (rule, case)
        for rule, cases in CASES.items()
        for case in cases
        if rule in wrong - LOADS - DEADLY and case.name == "m" and case.gpus is None
        if not case.flavours and not case.output_kinds  # which Triton does not read
        if case.is_ensemble
        or (case.signature == ONNX and tuple(file.path for file in case.files) == FILES)
    ]


def write(server: BareTriton, name: str, case: LintSubject, model: bytes = BATCHED) -> None:
    """The model's folder; the configuration under this name."""
    folder = server.repository / name
    (folder / "1").mkdir(parents=True)
    assert case.config is not None
    text = canonical_text(case.config).replace('"m"', f'"{name}"')
    if not case.is_ensemble and not case.message.instance_group:
        text += f"{ONE_INSTANCE}\n"
    (folder / "config.pbtxt").write_text(text)
    if not case.is_ensemble:
        (folder / "1" / "model.onnx").write_bytes(model)


@pytest.fixture(scope="module")
def server(bare_triton_factory: BareTritonFactory) -> BareTriton:
    running = bare_triton_factory("--rate-limit=execution_count")
    write(running, "a", subject(OTHERS["a"]))
    write(running, "two", subject(OTHERS["two"]), TWO)
    return running


def loads(server: BareTriton, name: str) -> bool:
    try:
        load(server, name)
    except RuntimeError:
        return False
    return True


def test_triton_refuses_what_lint_calls_an_error(server: BareTriton) -> None:
    cases = {f"wrong_{index}": case for index, case in enumerate(errors())}
    for name, (_, case) in cases.items():
        write(server, name, case)
    with ThreadPoolExecutor(AT_ONCE) as several:
        loaded = several.map(partial(loads, server), cases)
    assert len(cases) > 40
    assert [cases[name][0] for name, did in zip(cases, loaded, strict=True) if did] == []


def test_triton_loads_what_lint_passes(server: BareTriton) -> None:
    good = [subject(), onnx("dynamic_batching { preferred_batch_size: [ 4, 8 ] }"), *GOOD_ENSEMBLES]
    for index, case in enumerate(good):
        write(server, f"good_{index}", case)
        load(server, f"good_{index}")


def test_triton_refuses_a_lone_call_whose_timeout_is_before_the_delay(server: BareTriton) -> None:
    """What `timeout-before-delay` warns of."""
    batching = (
        "dynamic_batching { max_queue_delay_microseconds: 500000 "
        "default_queue_policy { default_timeout_microseconds: 1000 } }"
    )
    write(server, "impatient", onnx(batching))
    load(server, "impatient")
    sent = {"name": "x", "shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]}
    address = f"http://{server.http}/v2/models/impatient/infer"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(address, json.dumps({"inputs": [sent]}).encode(), timeout=30)
    assert refused.value.code == 503
    assert b"Request timeout expired" in refused.value.read()
