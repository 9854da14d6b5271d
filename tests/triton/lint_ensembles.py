"""Ensembles with exactly one thing wrong, by the rule that has to find it."""

from collections.abc import Mapping, Sequence

from serve.triton.lint import Subject

from .lint_cases import GOOD, INPUT, IO, OUTPUT, subject

Edges = Sequence[tuple[str, str]]
HEAD = 'platform: "ensemble"\nmax_batch_size: 8\n' + IO
TWO_INPUTS = GOOD + INPUT.replace('"x"', '"w"')
OTHERS = {
    "a": GOOD,
    "two": TWO_INPUTS,
    "loop": f'platform: "ensemble" {IO} ensemble_scheduling {{ step {{ model_name: "m" }} }}',
}


def step(model: str = "a", inputs: Edges = (("x", "x"),), outputs: Edges = (("y", "y"),)) -> str:
    """A step; an edge is the tensor in the model, and the tensor in the ensemble."""
    maps = [f'input_map {{ key: "{key}" value: "{value}" }}' for key, value in inputs]
    maps += [f'output_map {{ key: "{key}" value: "{value}" }}' for key, value in outputs]
    return f'step {{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}\n'


def ensemble(*steps: str, head: str = HEAD, more: str = "") -> Subject:
    """An ensemble m of these steps; it has no files of its own."""
    scheduling = f"ensemble_scheduling {{ {''.join(steps)} }}\n" if steps else ""
    files = ("config.pbtxt",)
    return subject(head + scheduling + more, files=files, signature=None, others=OTHERS)


CASES: Mapping[str, Sequence[Subject]] = {
    "ensemble-platform": [
        ensemble(step(), head=HEAD.replace('platform: "ensemble"', "")),
        ensemble(),
    ],
    "ensemble-only": [
        ensemble(step(), more="instance_group { count: 1 }"),
        ensemble(step(), more="optimization { priority: PRIORITY_MAX }"),
    ],
    "step-unknown": [ensemble(step("nobody"))],
    "step-itself": [ensemble(step("m")), ensemble(step("loop"), head=HEAD.replace("8", "0", 1))],
    "step-input-unknown": [ensemble(step(inputs=[("x", "x"), ("q", "x")]))],
    "step-output-unknown": [
        ensemble(step(outputs=[("y", "y"), ("q", "z")]), head=HEAD + OUTPUT.replace('"y"', '"z"'))
    ],
    "step-input-missing": [ensemble(step("two"))],
    "tensor-unproduced": [
        ensemble(step(), head=HEAD + OUTPUT.replace('"y"', '"z"')),
        ensemble(step("two", [("x", "x"), ("w", "nothing")])),
    ],
    "tensor-unused": [
        ensemble(step(), step(outputs=[("y", "left")])),
        ensemble(step(), head=HEAD + INPUT.replace('"x"', '"u"')),
    ],
    "tensor-produced-twice": [ensemble(step(), step())],
    "input-overwritten": [ensemble(step(), step(outputs=[("y", "x")]))],
    "tensor-cycle": [
        ensemble(
            step("two", [("x", "x"), ("w", "back")], [("y", "y")]),
            step("a", [("x", "y")], [("y", "back")]),
        )
    ],
    "edge-datatype": [ensemble(step(), head=HEAD.replace("FP32", "INT32", 1))],
    "edge-dims": [
        ensemble(step(), head=HEAD.replace("[ 3 ]", "[ 4 ]", 1)),
        ensemble(step(), head=HEAD.replace("[ 3 ]", "[ 3, 1 ]", 1)),
    ],
    "ensemble-batch-size": [ensemble(step(), head=HEAD.replace("8", "16", 1))],
}
GOOD_ENSEMBLES = (
    ensemble(step()),
    ensemble(step(inputs=[("x", "x")], outputs=[("y", "mid")]), step(inputs=[("x", "mid")])),
    ensemble(step("two", [("x", "x"), ("w", "x")])),
    ensemble(step(), head=HEAD.replace("[ 3 ]", "[ -1 ]")),
)
