"""Where the time goes in a model that is made of others: its steps, with their own statistics.

Triton counts for each model, not for who called it: the numbers of a step are those of all its
callers. How many of its calls came by this model is known for an ensemble, whose steps are each
executed once per call; `others` are the rest. Steps of an ensemble may run beside each other, so
their shares may sum to more than 1.

A model of the Python backend that calls others (BLS) does so in its own code. Triton's statistics
do not say so, its computing time includes that of what it calls, and its traces tell only where
the code passes them on (`trace=request.trace()`), into a file on the server's machine. So such a
model names its parts itself, in a parameter of config.pbtxt, called as Model Analyzer's option is:

    parameters { key: "bls_composing_models" value: { string_value: "tokenizer, encoder" } }
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from serve.control.batching.windows import CountWindow
from serve.triton.config import Configuration

PARAMETER = "bls_composing_models"
NEWEST = -1
_DEEPEST = 8  # ensembles within ensembles
_MOST = 200  # steps that are told
_WORDS = re.compile(r"[,\s]+")
_BLS = "python"

ENSEMBLE_LIMIT = "the numbers of a step include all its callers, because Triton counts per model"
BLS_LIMIT = (
    "this model calls the others in its own code, so its execution time includes theirs, and "
    "Triton does not report which of their calls came from it"
)
BLS_UNNAMED = (
    "a model of the Python backend can call others in its own code, and Triton's statistics do not "
    f'say so; list them: parameters {{ key: "{PARAMETER}" value: {{ string_value: "a, b" }} }}'
)


@dataclass(frozen=True, slots=True)
class CalledModel:
    """A model that is called: its name and version in Triton, and how people call it."""

    name: str
    version: int
    asked: str
    configuration: Configuration | None


Find = Callable[
    [str, int], CalledModel | None
]  # a name in Triton and a version, or -1 for the newest
Look = Callable[[str, int], CountWindow]


@dataclass(frozen=True, slots=True)
class EnsembleStep:
    """One step. `path` is its place: `2`, and `2.1` within an ensemble that is step 2.

    `calls` are those of the window, of which `others` came from elsewhere; None where that cannot
    be told. `queue` and `compute` are seconds per call, `share` is of the time of the whole.
    """

    path: str
    name: str
    version: int
    asked: str
    calls: int
    others: int | None
    queue: float
    compute: float
    rows_per_execution: float
    share: float | None


@dataclass(frozen=True, slots=True)
class EnsembleSteps:
    """The steps of a model; `kind` is `ensemble` or `bls`, and `limit` what is not known."""

    kind: str
    steps: tuple[EnsembleStep, ...]
    limit: str


def parts_of(
    configuration: Configuration, whole: CountWindow, find: Find, look: Look
) -> EnsembleSteps | None:
    """The steps of a model; None for one that, as far as is known, calls nobody.

    A step that nobody has is told with no calls.
    """
    if configuration.message.HasField("ensemble_scheduling"):
        places = list(itertools.islice(_walk(configuration, find, "", 0), _MOST))
        times = Counter((known.name, known.version) for _, known in places)
        steps = [
            _step(path, known, whole, look, times[known.name, known.version])
            for path, known in places
        ]
        return EnsembleSteps("ensemble", tuple(steps), ENSEMBLE_LIMIT)
    if configuration.message.backend != _BLS:
        return None
    named = configuration.message.parameters.get(PARAMETER)
    words = [word for word in _WORDS.split(named.string_value if named else "") if word]
    if not words:
        return EnsembleSteps("bls", (), BLS_UNNAMED)
    steps = [
        _step(str(place), _found(find, name, NEWEST), whole, look, None)
        for place, name in enumerate(words[:_MOST], 1)
    ]
    return EnsembleSteps("bls", tuple(steps), BLS_LIMIT)


def _walk(
    configuration: Configuration, find: Find, path: str, depth: int
) -> Iterator[tuple[str, CalledModel]]:
    """Each step with its place; those of an ensemble within this one follow it."""
    for place, step in enumerate(configuration.message.ensemble_scheduling.step, 1):
        known = _found(find, step.model_name, int(step.model_version) or NEWEST)
        here = f"{path}{place}"
        yield here, known
        if known.configuration is not None and depth < _DEEPEST:
            yield from _walk(known.configuration, find, f"{here}.", depth + 1)


def _found(find: Find, name: str, version: int) -> CalledModel:
    return find(name, version) or CalledModel(name, version, name, None)


def _step(
    path: str, known: CalledModel, whole: CountWindow, look: Look, times: int | None
) -> EnsembleStep:
    """`times` is how often each call of the whole calls it; None where that is not known."""
    window = look(known.name, known.version)
    calls = window.counted.calls
    expected = None if times is None else times * whole.counted.calls
    return EnsembleStep(
        path=path,
        name=known.name,
        version=known.version,
        asked=known.asked,
        calls=calls,
        others=None if expected is None else max(calls - expected, 0),
        queue=window.queue,
        compute=window.compute,
        rows_per_execution=window.rows_per_execution,
        share=window.whole / whole.whole if whole.whole and calls else None,
    )
