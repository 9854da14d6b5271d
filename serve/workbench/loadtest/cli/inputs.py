"""The requests of a load test, from the texts of `--input` and `--expect`, `--batch` rows each.

| text                        | the requests                                                     |
|-----------------------------|------------------------------------------------------------------|
| `random` (or `x=random`)    | `--random-bodies` different ones                                 |
| `x=@a.npy`, `@a.npz`, …     | as many as its rows make                                         |
| `@one.png`, `@two.png`, …   | the pictures are the rows: an input may be given several times   |

This module imports numpy: commands import it when they run.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from serve.cli.inputs import RANDOM, InputReader, Inputs
from serve.core.errors import Invalid
from serve.tensors.datatypes import Array
from serve.tensors.metadata import Metadata, TensorSpec
from serve.workbench.loadtest.encoded_bodies import PreparedCall, cut

Read = Callable[[Sequence[str], int | None], Inputs]


@dataclass(frozen=True, slots=True)
class EncodedInputs:
    """Requests to encode. `output`: whose classes are checked, or empty; `notes` for people."""

    requests: tuple[PreparedCall, ...]
    datatypes: Mapping[str, str]
    output: str
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InputRequest:
    """What was asked: `batch` is 0 where nothing was said: rows one at a time."""

    inputs: tuple[str, ...] = (RANDOM,)
    batch: int = 0
    expect: str = ""
    random_bodies: int = 16
    seed: int = 0


def read_requests(
    model: str,
    metadata: Metadata,
    wish: InputRequest,
    preprocessing: Callable[[], Mapping[str, Any]],
) -> EncodedInputs:
    """The requests; `Invalid` for what cannot be read or does not fit the model."""
    rng = np.random.default_rng(wish.seed)

    def read(texts: Sequence[str], batch: int | None) -> Inputs:
        return InputReader(model, metadata.inputs, preprocessing, rng).read(texts, batch)

    batched = set(metadata.inputs)
    if not all(one.has_batch for one in metadata.inputs.values()):
        batched.clear()
    if wish.batch and not batched:
        raise Invalid(
            f"--batch {wish.batch} does not fit model '{model}'",
            why="some of its inputs have no batch dimension",
        )
    output, classes = _expected(model, metadata, wish.expect)
    batch = wish.batch or 1
    if all(map(_is_random, wish.inputs)):
        found = _random(read, wish, batched)
    else:
        found = _given(read, wish.inputs, batched)
    if len(found) > 1 and classes is not None:
        raise Invalid("--expect needs a model with a batch dimension, or a single request")
    requests = [one for each in found for one in cut(each.tensors, batched, batch, classes)]
    notes = dict.fromkeys(note for each in found for note in each.notes)
    rows = max(map(len, found[0].tensors.values())) if batched else 0
    if rows > batch and rows % batch:
        notes[f"the last {rows % batch} rows are not used: a request has {batch} rows"] = None
    return EncodedInputs(tuple(requests), found[0].datatypes, output, tuple(notes))


def _random(read: Read, wish: InputRequest, batched: set[str]) -> list[Inputs]:
    if wish.expect:
        raise Invalid(
            "--expect cannot be used with random inputs",
            why="their classes are unknown",
            try_this="--input @FILE.npz",
        )
    if not batched:
        return [read(wish.inputs, None) for _ in range(wish.random_bodies)]
    return [read(wish.inputs, wish.random_bodies * (wish.batch or 1))]


def _given(read: Read, texts: Sequence[str], batched: set[str]) -> list[Inputs]:
    """Files, and random values for as many rows as they have."""
    randoms = [text for text in texts if _is_random(text)]
    found: list[Inputs] = []
    for turn in _turns([text for text in texts if not _is_random(text)]):
        each = read(turn, None)
        if randoms:
            rows = max(map(len, each.tensors.values())) if batched else None
            each = read((*turn, *randoms), rows)
        found.append(each)
    return _joined(found) if batched else found


def _turns(texts: Sequence[str]) -> list[list[str]]:
    """Texts for one input each by turns: the first of every input, the second of every input, …"""
    by_name: dict[str, list[str]] = {}
    for text in texts:
        name = "" if text.startswith("@") else text.partition("=")[0]
        by_name.setdefault(name, []).append(text)
    counts = {len(given) for given in by_name.values()}
    if len(counts) > 1:
        found = ", ".join(f"{name or 'without a name'}: {len(x)}" for name, x in by_name.items())
        raise Invalid("the inputs have different numbers of --input options", why=found)
    return [list(turn) for turn in zip(*by_name.values(), strict=True)]


def _joined(found: Sequence[Inputs]) -> list[Inputs]:
    """All turns as one, rows under rows."""
    tensors: dict[str, Array] = {}
    for name in found[0].tensors:
        arrays = [each.tensors[name] for each in found]
        try:
            tensors[name] = np.concatenate(arrays)
        except ValueError as error:
            shapes = ", ".join(str(list(one.shape)) for one in arrays)
            raise Invalid(
                f"the rows of input '{name}' have different shapes", why=shapes
            ) from error
    notes = tuple(note for each in found for note in each.notes)
    return [Inputs(tensors, found[0].datatypes, notes)]


def _expected(model: str, metadata: Metadata, text: str) -> tuple[str, Array | None]:
    """The output to check, and the class of each row."""
    if not text:
        return "", None
    name, _, source = text.partition("=") if not text.startswith("@") else ("", "=", text)
    name = name or (next(iter(metadata.outputs)) if len(metadata.outputs) == 1 else "")
    if name not in metadata.outputs:
        raise Invalid(
            f"--expect {text} does not name an output of model '{model}'",
            why=f"its outputs are {', '.join(metadata.outputs)}",
            try_this=f"--expect {next(iter(metadata.outputs), 'OUTPUT')}=@labels.npy",
        )
    if not source.startswith("@"):
        raise Invalid(
            f"--expect cannot be '{text}'",
            why="expected [OUTPUT=]@FILE",
            try_this=f"--expect {name}=@labels.npy",
        )
    classes: Array | None = None
    for called in (name, "labels"):  # in an .npz, as `convert --labelled` has it
        wanted = {called: TensorSpec(called, "INT64", (-1,))}
        try:
            reader = InputReader(model, wanted, dict, np.random.default_rng(0))
            classes = reader.read([f"{called}={source}"]).tensors[called]
        except Invalid:
            if called == "labels" or not source.endswith(".npz"):
                raise
        else:
            break
    return name, classes


def _is_random(text: str) -> bool:
    return text == RANDOM or text.endswith(f"={RANDOM}")
