"""Rules about ensembles: steps, and the tensors that lead from one to the next.

Triton checks most of this only when the ensemble is loaded, and says why only in its log.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from serve.triton.lint.subject import Findings, LintFinding, LintSubject
from serve.triton.lint.tensors import datatype_word, shape_of, shown


def steps(subject: LintSubject) -> Iterator[tuple[str, Any]]:
    """Each step and how it is called here; nothing for a model that is no ensemble."""
    for index, step in enumerate(subject.message.ensemble_scheduling.step):
        yield f"step {index + 1} ('{step.model_name}')", step


def _known_steps(subject: LintSubject) -> Iterator[tuple[str, Any, Any]]:
    """The steps whose model is known, with that model's configuration."""
    for title, step in steps(subject):
        other = subject.others.get(step.model_name)
        if other is not None and step.model_name != subject.name:
            yield title, step, other.message


def ensemble_platform(subject: LintSubject) -> Findings:
    """Steps are configured without the platform `ensemble`, or the platform without steps.

    Triton: `ensemble scheduling cannot be set for model … whose platform is not ensemble`.
    """
    message = subject.message
    if message.HasField("ensemble_scheduling") and message.platform != "ensemble":
        yield LintFinding(
            "platform", "a model with steps is an ensemble", 'set platform: "ensemble"'
        )
    if message.platform == "ensemble" and not message.ensemble_scheduling.step:
        yield LintFinding("ensemble_scheduling", "an ensemble needs steps", "add step { … }")


def ensemble_only(subject: LintSubject) -> Findings:
    """A field is not allowed in an ensemble, because an ensemble executes nothing itself.

    Triton: `instance group should not be specified for ensemble`, and similar messages.
    """
    message = subject.message
    used = {
        "instance_group": bool(message.instance_group),
        "optimization": message.HasField("optimization"),
        "model_warmup": bool(message.model_warmup),
    }
    for field, is_used in used.items():
        if is_used and message.HasField("ensemble_scheduling"):
            yield LintFinding(
                field, "an ensemble executes nothing itself", "set it in the steps' models"
            )


def step_unknown(subject: LintSubject) -> Findings:
    """The model of a step does not exist.

    Triton: `ensemble … contains models that are not available or ambiguous`.
    """
    for title, step in steps(subject):
        if step.model_name not in subject.others and step.model_name != subject.name:
            yield LintFinding(title, f"there is no model '{step.model_name}'", "publish it first")


def step_itself(subject: LintSubject) -> Findings:
    """An ensemble is a step of itself, directly or through another ensemble.

    Triton: `circular dependency between ensembles`.
    """
    for title, step in steps(subject):
        if _leads_to(step.model_name, subject.name, subject.others, set()):
            yield LintFinding(title, "it leads back to this ensemble", "use another model")


def _leads_to(name: str, wanted: str, others: Mapping[str, Any], seen: set[str]) -> bool:
    if name == wanted:
        return True
    if name in seen or name not in others:
        return False
    seen.add(name)
    parts = others[name].composing_models
    return any(_leads_to(part, wanted, others, seen) for part in parts)


def step_input_unknown(subject: LintSubject) -> Findings:
    """A step maps an input that its model does not have.

    Triton: `ensemble tensor x is mapping to non-existing input q in model m`.
    """
    for title, step, other in _known_steps(subject):
        known = [entry.name for entry in other.input]
        for name in sorted(step.input_map) if known else ():
            if name not in known:
                yield LintFinding(
                    f"{title}.input_map",
                    f"the model has no input '{name}', only {', '.join(known)}",
                    "use the input's name in that model as the key",
                )


def step_output_unknown(subject: LintSubject) -> Findings:
    """A step maps an output that its model does not have.

    Triton: `ensemble tensor y is mapped from non-existing output q in model m`.
    """
    for title, step, other in _known_steps(subject):
        known = [entry.name for entry in other.output]
        for name in sorted(step.output_map) if known else ():
            if name not in known:
                yield LintFinding(
                    f"{title}.output_map",
                    f"the model has no output '{name}', only {', '.join(known)}",
                    "use the output's name in that model as the key",
                )


def step_input_missing(subject: LintSubject) -> Findings:
    """A step does not map an input of its model.

    Triton refuses to load the model: `expected 2 inputs but got 1`.
    """
    for title, step, other in _known_steps(subject):
        for entry in other.input:
            if not entry.optional and entry.name not in step.input_map:
                yield LintFinding(
                    f"{title}.input_map",
                    f"the model's input '{entry.name}' is not mapped",
                    f'add input_map {{ key: "{entry.name}" value: … }}',
                )


def tensor_unproduced(subject: LintSubject) -> Findings:
    """A step or an output of the ensemble uses a tensor that nothing produces.

    Triton refuses to load the model: `ensemble output 'y' for ensemble m is not used`.
    """
    message = subject.message
    made = {entry.name for entry in message.input} | {name for _, name in produced(subject)}
    for title, step in steps(subject):
        for tensor in sorted(set(step.input_map.values()) - made):
            yield LintFinding(
                f"{title}.input_map",
                f"no step or input produces '{tensor}'",
                "use an input of the ensemble, or an output of another step",
            )
    for entry in message.output if message.ensemble_scheduling.step else ():
        if entry.name not in made:
            yield LintFinding(
                f"output '{entry.name}'", "no step produces it", "name it in a step's output_map"
            )


def tensor_unused(subject: LintSubject) -> Findings:
    """An input of the ensemble, or a tensor that a step produces, is never used.

    Triton: `ensemble tensor 'z' is unused`, `ensemble input 'u' is not used`.
    """
    message = subject.message
    taken = {tensor for _, step in steps(subject) for tensor in step.input_map.values()}
    wanted = taken | {entry.name for entry in message.output}
    for title, tensor in dict.fromkeys(produced(subject)):
        if tensor not in wanted:
            yield LintFinding(
                f"{title}.output_map", f"nothing uses '{tensor}'", "remove the output from the map"
            )
    for entry in message.input if message.ensemble_scheduling.step else ():
        if entry.name not in taken:
            yield LintFinding(f"input '{entry.name}'", "no step uses it", "remove the input")


def tensor_produced_twice(subject: LintSubject) -> Findings:
    """Two steps produce the same tensor.

    Triton: `ensemble tensor 'y' can appear in an output map only once`.
    """
    made: set[str] = set()
    for title, tensor in produced(subject):
        if tensor in made:
            yield LintFinding(
                f"{title}.output_map",
                f"'{tensor}' is already produced",
                "use another name for one of them",
            )
        made.add(tensor)


def input_overwritten(subject: LintSubject) -> Findings:
    """A step produces a tensor that is an input of the ensemble.

    Triton 2.51 loads the ensemble. The other steps use whichever of the two tensors is available
    first.
    """
    given = {entry.name for entry in subject.message.input}
    for title, tensor in produced(subject):
        if tensor in given:
            yield LintFinding(
                f"{title}.output_map", f"'{tensor}' is an input of the ensemble", "use another name"
            )


def produced(subject: LintSubject) -> Iterator[tuple[str, str]]:
    """Each step, as it is called here, with a tensor that it produces."""
    for title, step in steps(subject):
        for _, tensor in sorted(step.output_map.items()):
            yield title, tensor


def edge_datatype(subject: LintSubject) -> Findings:
    """The producer and a consumer of a tensor declare different data types.

    Triton: `ensemble tensor x: inconsistent data type`.
    """
    first: dict[str, tuple[str, int]] = {}
    for tensor, where, entry, _ in _ends(subject):
        known, wanted = first.setdefault(tensor, (where, entry.data_type))
        if entry.data_type != wanted:
            yield LintFinding(
                f"tensor '{tensor}'",
                f"{where} has {datatype_word(entry.data_type)}, "
                f"{known} has {datatype_word(wanted)}",
                "use the same data type at both ends",
            )


def edge_dims(subject: LintSubject) -> Findings:
    """The producer and a consumer of a tensor declare different shapes; -1 fits any.

    Triton: `ensemble tensor x: inconsistent shape`.
    """
    first: dict[str, tuple[str, list[int]]] = {}
    for tensor, where, entry, largest in _ends(subject):
        shape = shape_of(entry, largest) if not entry.HasField("reshape") else list(entry.dims)
        if entry.HasField("reshape") and largest > 0:
            shape = [-1, *shape]
        known, wanted = first.setdefault(tensor, (where, shape))
        fits = len(shape) == len(wanted) and all(
            -1 in pair or pair[0] == pair[1] for pair in zip(shape, wanted, strict=True)
        )
        if not fits:
            yield LintFinding(
                f"tensor '{tensor}'",
                f"{where} has {shown(shape)}, {known} has {shown(wanted)} (with batch dimension)",
                "use the same shape at both ends",
            )


def _ends(subject: LintSubject) -> Iterator[tuple[str, str, Any, int]]:
    """Tensor, place, configured entry and largest batch of every end of an edge that is known."""
    message = subject.message
    if not message.HasField("ensemble_scheduling"):
        return
    for entry in (*message.input, *message.output):
        yield entry.name, "the ensemble", entry, message.max_batch_size
    for title, step, other in _known_steps(subject):
        for mapping, entries in ((step.input_map, other.input), (step.output_map, other.output)):
            known = {entry.name: entry for entry in entries}
            for name, tensor in sorted(mapping.items()):
                if name in known:
                    yield tensor, title, known[name], other.max_batch_size


def ensemble_batch_size(subject: LintSubject) -> Findings:
    """An ensemble allows larger batches than one of its steps.

    Triton: `allows maximum batch size 16, but it contains model m which only allows … 8`.
    """
    largest = subject.message.max_batch_size
    for title, _, other in _known_steps(subject):
        if largest > other.max_batch_size and (other.max_batch_size > 0 or other.input):
            yield LintFinding(
                "max_batch_size",
                f"it is {largest}, but {title} allows only {other.max_batch_size}",
                f"set max_batch_size: {other.max_batch_size}",
            )
