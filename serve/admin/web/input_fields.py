"""The form of a try: how each input of a model may be given, and what somebody has given.

Fields carry the position of their input, not its name, which may be anything: `form-0` says which
of `file-0`, `drawn-0`, `json-0`, … counts. Those that end in `-all` are for all inputs together.
"""

import base64
import binascii
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import FormData, UploadFile

from serve.admin.web.preprocessing_text import in_words
from serve.admin.web.sentences import shape_text
from serve.core.errors import Invalid
from serve.tensors.datatypes import BYTES
from serve.tensors.metadata import TensorSpec
from serve.tensors.preprocessing import ImageSteps, Steps, TextSteps, parse

MOST_CELLS = 1024  # of a grid
ALL, EACH = "all", "each"
_CANVAS = 256  # pixels of a drawing's longer side
_DRAWN = "data:image/png;base64,"

TITLES = {
    "draw": "Draw",
    "image": "Picture",
    "text": "Text",
    "grid": "Grid",
    "example": "Golden cases",
    "json": "JSON",
    "csv": "CSV",
    "npy": "NPY, NPZ",
    "random": "Random",
    "omit": "Omit",
    EACH: "Per input",
    "again": "Saved input",
    "npz": "NPZ file",
}


@dataclass(frozen=True, slots=True)
class InputField:
    """One input on the page. `forms` are its tabs, the first of which is open.

    `grid` is the shape of its numbers, -1 where people choose a length; with `has_rows` its first
    dimension counts the rows of a batch, which larger shapes leave out. `canvas` is the width and
    height of a drawing; `words` tell its preprocessing.
    """

    key: str
    name: str
    datatype: str
    shape: str
    forms: tuple[str, ...]
    grid: tuple[int, ...]
    has_rows: bool
    canvas: tuple[int, int]
    words: tuple[str, ...]


def fields_of(
    inputs: Mapping[str, TensorSpec],
    preprocessing: Mapping[str, Any],
    *,
    examples: bool,
    optional: Collection[str] = (),
) -> tuple[InputField, ...]:
    """The fields of a model; `examples` can be chosen by input where there is only one.

    Inputs that are `optional` are left out of the call unless another tab is chosen.
    """
    steps = parse(preprocessing).inputs if preprocessing else {}
    words = in_words(preprocessing)
    has_own = examples and len(inputs) == 1
    return tuple(
        _field(
            str(place),
            spec,
            steps.get(name),
            tuple(words.get(name, ())),
            has_own,
            may_omit=name in optional and len(inputs) > 1,
        )
        for place, (name, spec) in enumerate(inputs.items())
    )


def together(fields: Sequence[InputField], *, examples: bool, again: bool) -> tuple[str, ...]:
    """The tabs for all inputs together; none where one input has all that it needs."""
    if len(fields) == 1 and not again:
        return ()
    several = (*(("example",) if examples else ()), "npz", "json", "random")
    return (*(("again",) if again else ()), EACH, *(several if len(fields) > 1 else ()))


async def given_of(form: FormData, inputs: Sequence[str]) -> dict[str, tuple[str, bytes, str]]:
    """What is given, as (form, bytes, the name of a file) by input, or under an empty name."""
    chosen = str(form.get(f"form-{ALL}", EACH))
    if chosen not in (EACH, "again"):
        return {"": await _given(form, ALL, chosen)}
    found: dict[str, tuple[str, bytes, str]] = {}
    for place, name in enumerate(inputs):
        kind = str(form.get(f"form-{place}", ""))
        if kind and kind != "omit":
            given = await _given(form, str(place), kind)
            found["" if given[0] == "example" else name] = given
    if not found:
        raise Invalid("the request has no input", try_this="choose a tab and enter an input")
    return found


def _field(
    key: str,
    spec: TensorSpec,
    steps: Steps | None,
    words: tuple[str, ...],
    has_examples: bool,
    *,
    may_omit: bool,
) -> InputField:
    row = spec.shape[1:] if spec.has_batch else spec.shape
    has_rows = spec.has_batch and len(row) < 2
    is_small = math.prod(max(length, 1) for length in row) <= MOST_CELLS
    forms: list[str] = []
    canvas = (_CANVAS, _CANVAS)
    if isinstance(steps, ImageSteps):
        canvas = _canvas(steps)
        forms = ["draw", "image"] if steps.color == "grey" else ["image", "draw"]
    elif isinstance(steps, TextSteps) or spec.datatype == BYTES:
        forms = ["text"]
    elif is_small:
        forms = ["grid"]
    if has_examples:
        forms.append("example")
    if "grid" not in forms and is_small and spec.datatype != BYTES:
        forms.append("grid")
    forms += ["json", "csv", "npy", "random"]
    if not isinstance(steps, ImageSteps | TextSteps) and not is_small:
        forms.insert(0, forms.pop())
    if may_omit:
        forms.insert(0, "omit")
    return InputField(
        key=key,
        name=spec.name,
        datatype=spec.datatype,
        shape=shape_text(spec.shape),
        forms=tuple(forms),
        grid=spec.shape if has_rows else row,
        has_rows=has_rows,
        canvas=canvas,
        words=words,
    )


def _canvas(steps: ImageSteps) -> tuple[int, int]:
    """Width and height as the model sees the picture."""
    height, width = steps.crop or steps.resize or (1, 1)
    longer = max(height, width)
    return max(_CANVAS * width // longer, 16), max(_CANVAS * height // longer, 16)


async def _given(form: FormData, key: str, kind: str) -> tuple[str, bytes, str]:
    if kind in ("json", "csv", "text", "grid", "example"):
        text = str(form.get(f"{kind}-{key}", "")).strip("\r\n" if kind == "text" else None)
        if not text:
            raise _nothing(kind)
        said = "" if kind in ("example", "text") else f"the field '{TITLES[kind]}'"
        return ("json" if kind == "grid" else kind), text.replace("\r\n", "\n").encode(), said
    if kind == "random":
        return kind, b"", ""
    if kind == "draw":
        return "image", _drawing(str(form.get(f"drawn-{key}", ""))), "drawing.png"
    if kind not in ("image", "npy", "npz"):
        raise Invalid(f"'{kind[:40]}' is not a valid input format")
    file = form.get(f"{kind}-{key}")
    if not isinstance(file, UploadFile) or not file.filename:
        raise _nothing(kind)
    data = await file.read()
    if kind == "npy" and data.startswith(b"PK"):
        kind = "npz"
    return kind, data, file.filename[:200]


def _drawing(text: str) -> bytes:
    """The PNG file behind a data URL."""
    if not text.startswith(_DRAWN):
        raise Invalid("the drawing is empty", try_this="draw something, or choose another tab")
    try:
        return base64.b64decode(text[len(_DRAWN) :], validate=True)
    except binascii.Error as error:
        raise Invalid("the drawing cannot be read", why=str(error)) from error


def _nothing(kind: str) -> Invalid:
    if kind in ("image", "npy", "npz"):
        what, fix = f"no {'picture' if kind == 'image' else 'file'} is selected", "select one"
    else:
        what, fix = f"the field '{TITLES.get(kind, kind)}' is empty", "fill it in"
    return Invalid(what, try_this=f"{fix}, or choose another tab")
