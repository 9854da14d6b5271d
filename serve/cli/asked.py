"""Which model, and which version of it, a command means: `NAME`, `NAME@3` or `NAME:label`."""

from dataclasses import dataclass

from serve.core.errors import Invalid
from serve.core.names import check_label, check_model_name


@dataclass(frozen=True, slots=True)
class ModelReference:
    """A model, and perhaps a version: `selector` is empty, a number, or a label."""

    model: str
    selector: str = ""


def parse_asked(text: str) -> ModelReference:
    """Read `NAME`, `NAME@3` or `NAME:label`."""
    model, at, number = text.partition("@")
    if at:
        if not (number.isascii() and number.isdigit()):
            raise Invalid(
                f"'{text}' is not a version",
                why="expected a version number after '@'",
                try_this=f"{model}@1 for a version, or {model}:LABEL for a label",
            )
        return ModelReference(check_model_name(model), number)
    model, colon, label = text.partition(":")
    return ModelReference(check_model_name(model), check_label(label) if colon else "")
