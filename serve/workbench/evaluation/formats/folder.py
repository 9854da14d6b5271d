"""A folder of pictures: labelled by the folder each is in, or by a `labels.csv`.

`labels.csv` lies at the top, or in the one folder that holds everything. Its columns are `path`
(below its own folder) and `label`; every other column is a slice. Pictures that it does not name
are left out.
"""

import io
from collections.abc import Iterator, Sequence

from PIL import Image

from serve.core.errors import Invalid
from serve.tensors.input_forms import GivenInput, InputForm
from serve.tensors.preprocessing import FORMATS, MAX_PIXELS
from serve.workbench.evaluation.formats.bundle import Bundle
from serve.workbench.evaluation.formats.lines import read_lines
from serve.workbench.evaluation.rows import Fresh

IMAGES = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tif", ".tiff")
LIST = "labels.csv"
_ASIDE = ("__MACOSX", "Thumbs.db", "desktop.ini")


def read_folder(bundle: Bundle, notes: list[str]) -> Iterator[Fresh]:
    """Each picture with its label; what is no picture by its name is told in `notes`."""
    paths = [path for path in bundle.paths() if not _is_aside(path)]
    lists = sorted((path for path in paths if path.split("/")[-1] == LIST), key=len)
    if lists:
        yield from _listed(bundle, lists[0], paths, notes)
        return
    others = [path for path in paths if not _is_image(path)]
    if others:
        notes.append(_left_out(others, "not a picture file"))
    for path in sorted(set(paths) - set(others)):
        folder, _, _ = path.rpartition("/")
        if not folder:
            raise Invalid(
                f"'{path}' has no label",
                why="the label of a picture is the name of its folder",
                try_this=f"use one folder per label, or a {LIST} with the columns path,label",
            )
        yield Fresh(folder.rpartition("/")[2], {"": picture(bundle.read(path), path)}, name=path)


def picture(data: bytes, name: str) -> GivenInput:
    """A picture that can be decoded; `Invalid` otherwise."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            if image.width * image.height > MAX_PIXELS:
                raise Invalid(
                    f"'{name}' is too large",
                    why=f"{image.width} x {image.height} pixels; at most {MAX_PIXELS} are allowed",
                )
            image.draft(None, (8, 8))  # a JPEG is decoded at an eighth: enough to see that it is
            image.load()
    except Invalid:
        raise
    except Exception as error:  # Pillow's decoders raise whatever a broken file brings them to
        raise Invalid(
            f"'{name}' is not a readable picture",
            why=str(error) or type(error).__name__,
            try_this=f"use one of the formats {', '.join(FORMATS)}",
        ) from error
    return GivenInput(InputForm.IMAGE, data, name)


def _listed(bundle: Bundle, listed: str, paths: Sequence[str], notes: list[str]) -> Iterator[Fresh]:
    """The pictures that `labels.csv` names."""
    lines = read_lines(io.BytesIO(bundle.read(listed)))
    columns = next(lines).cells
    if not {"path", "label"} <= set(columns):
        raise Invalid(
            f"'{listed}' lacks the columns path and label", why=f"it has {', '.join(columns)}"
        )
    folder = listed[: -len(LIST)]
    known, named = set(paths), set()
    for line in lines:
        row = dict(zip(columns, line.cells, strict=True))
        path = folder + row.pop("path").removeprefix("./")
        if path not in known:
            raise Invalid(
                f"line {line.number} of '{listed}' names '{path}'", why="there is no such file"
            )
        named.add(path)
        label = row.pop("label")
        yield Fresh(label, {"": picture(bundle.read(path), path)}, name=path, slices=row)
    left = sorted(known - named - {listed})
    if left:
        notes.append(_left_out(left, f"not in {LIST}"))


def _left_out(paths: Sequence[str], why: str) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"left out ({why}): {', '.join(paths[:3])}{more}"


def _is_image(path: str) -> bool:
    return path.lower().endswith(IMAGES)


def _is_aside(path: str) -> bool:
    """What machines put beside files: hidden ones, and those of a desktop."""
    parts = path.split("/")
    return any(part.startswith(".") or part in _ASIDE for part in parts)
