"""What stored conversions need: their uploads and blobs are not collected.

The records are written by `workbench/conversion/queue`, which may be missing here; the sources of
what is still to be converted stay all the same.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from serve.control.decisions import Decisions

CONVERSION = "conversion"  # the kind of the records
ENDED = frozenset({"done", "failed", "refused", "cancelled"})  # states


def needed_uploads(decisions: Decisions) -> frozenset[str]:
    """The uploads whose sources are still to be converted."""
    return frozenset(body["upload"] for _, body in _unfinished(decisions))


def needed_blobs(decisions: Decisions) -> frozenset[str]:
    """The digests of the papers of all conversions."""
    return frozenset(body["papers"] for _, body in _stored(decisions) if body["papers"])


def users_of(upload: str, decisions: Decisions) -> Iterator[str]:
    """What is to be converted from an upload, in words."""
    for identity, body in _unfinished(decisions):
        if body["upload"] == upload:
            yield f"conversion {identity}"


def _unfinished(decisions: Decisions) -> Iterator[tuple[str, Mapping[str, Any]]]:
    return (one for one in _stored(decisions) if one[1]["state"] not in ENDED)


def _stored(decisions: Decisions) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for (kind, identity), entry in decisions.entries.items():
        if kind == CONVERSION:
            yield identity, entry.body
