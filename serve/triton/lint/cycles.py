"""The rule about steps of an ensemble that wait for each other."""

from serve.triton.lint.ensembles import produced, steps
from serve.triton.lint.subject import Findings, LintFinding, LintSubject


def tensor_cycle(subject: LintSubject) -> Findings:
    """The steps form a cycle.

    Triton does not check this. Calls would never get a response.
    """
    stuck = ", ".join(_never_able(subject))
    if stuck:
        yield LintFinding(
            "ensemble_scheduling",
            f"{stuck} can never start, because each waits for an output of another",
            "connect the steps from the inputs to the outputs",
        )


def _never_able(subject: LintSubject) -> list[str]:
    """The steps that would wait for ever. Each tensor is looked at once: there may be thousands."""
    made = {name for _, name in produced(subject)}
    made -= {entry.name for entry in subject.message.input}
    waiting = dict(enumerate(steps(subject)))
    lacks = {at: set(step.input_map.values()) & made for at, (_, step) in waiting.items()}
    takers: dict[str, list[int]] = {}
    for at, tensors in lacks.items():
        for tensor in tensors:
            takers.setdefault(tensor, []).append(at)
    able = [at for at, tensors in lacks.items() if not tensors]
    while able:
        _, step = waiting.pop(able.pop())
        for tensor in step.output_map.values():
            for at in takers.pop(tensor, ()):
                lacks[at].discard(tensor)
                if not lacks[at]:
                    able.append(at)
    return [title for title, _ in waiting.values()]
