"""Names: which words may name a model or a label, and under which name Triton knows a version.

In Triton the configuration belongs to the model, so versions whose configurations differ cannot
share a name there. The physical name is the model's own for the group of versions that came first,
and the name with a short digest for every other.
"""

import re
from collections.abc import Container

from serve.core.errors import Invalid

LONGEST_NAME = 255  # characters of a model's name: it is a folder's, too
_MODEL = re.compile(rf"^[A-Za-z0-9_][A-Za-z0-9._-]{{0,{LONGEST_NAME - 1}}}\Z")
_LABEL = re.compile(r"^[A-Za-z_][A-Za-z0-9._-]{0,62}\Z")
_REPORT = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._@+-]{0,150}\Z")
_DIGEST = re.compile(r"^[0-9a-f]{8}\Z")
RESERVED_MODELS = frozenset({"stats"})  # GET /v2/models/stats means all models
RESERVED_LABELS = frozenset({"latest", "versions", "labels"})


def check_model_name(name: str) -> str:
    """Give the name back, or say why Triton could not be asked for it over HTTP."""
    if not _MODEL.match(name) or name in RESERVED_MODELS:
        raise Invalid(
            f"'{name}' is not a valid model name",
            why=f"a name has up to {LONGEST_NAME} letters, digits, '.', '_' or '-', and does not "
            "start with '.' or '-'; Triton reserves 'stats'",
        )
    return name


def is_report_name(name: str) -> bool:
    """Whether a report may be called so: its name is a folder's."""
    return _REPORT.match(name) is not None


def check_report_name(name: str) -> str:
    """Give the name of a report back, or say what it may be."""
    if not is_report_name(name):
        raise Invalid(
            f"'{name}' is not a valid report name",
            why="a name has up to 151 letters, digits, '.', '_', '@', '+' or '-', and starts with "
            "a letter or a digit",
        )
    return name


def check_label(name: str) -> str:
    """Give the label back; a label never looks like a number, so it is never taken for one."""
    if not _LABEL.match(name) or name in RESERVED_LABELS:
        raise Invalid(
            f"'{name}' is not a valid label",
            why="a label has up to 63 letters, digits, '.', '_' or '-', and starts with a letter "
            f"or '_'; {', '.join(sorted(RESERVED_LABELS))} are reserved",
        )
    return name


def physical_name(model: str, digest: str) -> str:
    """The name in Triton of a group of versions, by its digest (hexadecimal); see `model_of`."""
    return f"{model}--{digest[:8]}"


def model_of(physical: str, models: Container[str]) -> str:
    """The model that a name in Triton belongs to, given the names of all models."""
    name, mark, digest = physical.rpartition("--")
    if physical in models or not mark or name not in models or not _DIGEST.match(digest):
        return physical
    return name
