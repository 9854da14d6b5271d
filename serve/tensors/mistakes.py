"""Common mistakes between training and serving, as changes of the recorded preprocessing.

Each is one thing that training scripts do differently. `mistakes_of` is the table of them for given
steps; which of them explains a difference is found by trying, in `skew.py`. Two mistakes of
different `step`s can be made together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from serve.tensors.datatypes import Shape
from serve.tensors.preprocessing.images import FILTERS
from serve.tensors.preprocessing.steps import ImageSteps, Steps, TextSteps

Fields = dict[str, Any]
Standard = tuple[tuple[float, ...], tuple[float, ...]]

_IMAGENET: Standard = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
_MNIST: Standard = ((0.1307,), (0.3081,))
_HALF: Standard = ((0.5,), (0.5,))
_CAFFE = (103.939, 116.779, 123.68)  # of blue, green, red

_AS_THEY_ARE: Fields = {"scale": (1.0, 1.0), "divide": 1.0}
_SCALES: tuple[tuple[str, Fields], ...] = (
    ("pixels are not scaled (0 to 255)", _AS_THEY_ARE),
    ("pixels are multiplied by 1/255", {"scale": (1.0, 255.0), "divide": 1.0}),
    ("pixels are divided by 255, which rounds differently", _AS_THEY_ARE | {"divide": 255.0}),
    ("pixels are multiplied by 1/256, or divided by 256", {"scale": (1.0, 256.0), "divide": 1.0}),
)
_ONE: Fields = {"mean": (1.0,), "std": (1.0,)}
_CENTRED: tuple[tuple[str, Fields], ...] = (
    ("pixels become x / 127.5 - 1", _AS_THEY_ARE | {"divide": 127.5} | _ONE),
    ("pixels become x * (1 / 127.5) - 1", {"scale": (1.0, 127.5), "divide": 1.0} | _ONE),
)


@dataclass(frozen=True, slots=True)
class Mistake:
    """What training does, as a sentence, and the `fields` of the steps with which it does so."""

    step: str
    what: str
    fields: Mapping[str, Any]

    def applied(self, steps: Steps) -> Steps:
        """The steps as training has them."""
        return replace(steps, **self.fields)


def mistakes_of(steps: Steps, trained: Shape) -> tuple[Mistake, ...]:
    """The table for these steps; `trained` is the shape of one tensor of the training."""
    if isinstance(steps, TextSteps):
        found = list(_of_texts(steps, trained))
    else:
        found = [*_of_pixels(steps), *_of_sizes(steps, trained), *_of_numbers(steps)]
    distinct: dict[Steps, Mistake] = {}
    for one in found:
        distinct.setdefault(one.applied(steps), one)
    distinct.pop(steps, None)  # what the record says already
    return tuple(distinct.values())


def _of_pixels(steps: ImageSteps) -> Iterator[Mistake]:
    """The order of channels, the layout, the filter."""
    order = {"rgb": "red, green, blue", "bgr": "blue, green, red"}
    if steps.color in order:
        other = "bgr" if steps.color == "rgb" else "rgb"
        yield Mistake("color", f"the channels are {order[other]}", {"color": other})
    layout = "CHW" if steps.layout == "HWC" else "HWC"
    first = "channels come first" if layout == "CHW" else "channels come last"
    yield Mistake("layout", first, {"layout": layout})
    if steps.resample:
        for name in FILTERS:
            what = f"pictures are resized with filter {name}"
            yield Mistake("resample", what, {"resample": name})


def _of_sizes(steps: ImageSteps, trained: Shape) -> Iterator[Mistake]:
    """What is resized to what, and what is cut off."""
    size = steps.crop or steps.resize
    whole: Fields = {"shortest": 0, "crop": None}
    if steps.crop is not None:
        yield Mistake("size", "pictures are not cropped", {"crop": None})
        if steps.resample:
            what = "pictures are resized to their final size, not cropped"
            yield Mistake("size", what, whole | {"resize": steps.crop})
    if size is not None and steps.resample:
        for shortest in dict.fromkeys((min(size), min(size) * 8 // 7, 256)):
            what = f"the shortest side becomes {shortest}, then the centre is cropped"
            if shortest >= min(size):
                fields = {"resize": None, "shortest": shortest, "crop": size}
                yield Mistake("size", what, fields)
    if len(trained) == 3:
        height, width = trained[:2] if steps.channels == trained[2] else trained[1:]
        names = (steps.resample,) if steps.resample else tuple(FILTERS)
        if height and width and size != (height, width):
            for name in names:
                what = f"pictures are resized to {height} x {width} with filter {name}"
                exact = {"resize": (height, width), "resample": name}
                yield Mistake("size", what, whole | exact)


def _of_numbers(steps: ImageSteps) -> Iterator[Mistake]:
    """Scale, mean and std, alone and together."""
    floats: Fields = {"dtype": "FP32"} if steps.dtype == "UINT8" else {}
    same: Fields = {"scale": steps.scale, "divide": steps.divide}
    standards = tuple(_standards(steps))
    for what, fields in standards:
        yield Mistake("numbers", what, same | fields | floats)
    for what, fields in _SCALES:
        yield Mistake("numbers", what, fields | floats)
    for what, fields in _CENTRED:
        yield Mistake("numbers", what, fields | floats)
    for scaled, scale in _SCALES:
        for what, fields in standards:
            yield Mistake("numbers", f"{scaled}, and {what}", scale | fields | floats)


def _standards(steps: ImageSteps) -> Iterator[tuple[str, Fields]]:
    """What is subtracted and divided by: sentences and fields."""
    yield "no mean is subtracted and nothing is divided by std", {"mean": (0.0,), "std": (1.0,)}
    known: list[tuple[str, Standard]] = [("a mean and std of 0.5", _HALF)]
    if steps.channels == 3:
        known.append(("ImageNet's mean and std", _IMAGENET))
        flipped = (_IMAGENET[0][::-1], _IMAGENET[1][::-1])
        known.append(("ImageNet's mean and std, with blue first", flipped))
        known.append(("Caffe's mean of 103.939, 116.779, 123.68", (_CAFFE, (1.0,))))
        known.append(("Caffe's mean of 123.68, 116.779, 103.939", (_CAFFE[::-1], (1.0,))))
    else:
        known.append(("MNIST's mean and std", _MNIST))
    for what, (mean, std) in known:
        yield f"{what} are used", {"mean": mean, "std": std}
    if set(steps.std) != {1.0} or set(steps.mean) != {0.0}:
        yield (
            "mean and std are in units of pixels",
            {
                "mean": tuple(255 * mean for mean in steps.mean),
                "std": tuple(255 * std for std in steps.std),
            },
        )


def _of_texts(steps: TextSteps, trained: Shape) -> Iterator[Mistake]:
    """Case, white space, normal form, and how numbers are made of a text."""
    case = "texts keep their case" if steps.lower else "texts are in lower case"
    yield Mistake("lower", case, {"lower": not steps.lower})
    space = "texts keep white space at their ends" if steps.strip else "texts are stripped"
    yield Mistake("strip", space, {"strip": not steps.strip})
    for form in ("", "NFC", "NFKC"):
        what = f"texts are normalized to {form}" if form else "texts are not normalized"
        yield Mistake("normalize", what, {"normalize": form})
    if steps.becomes == "bytes":
        return
    if steps.dtype != "UINT8":
        other = "utf8" if steps.becomes == "codepoints" else "codepoints"
        yield Mistake("as", f"numbers are {other}", {"becomes": other})
    if len(trained) == 1 and trained[0]:
        yield Mistake("length", f"texts have the length {trained[0]}", {"length": trained[0]})
    for pad in (0, 1, 32):
        if steps.length:
            yield Mistake("pad", f"texts are padded with {pad}", {"pad": pad})
