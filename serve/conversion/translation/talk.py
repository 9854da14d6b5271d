"""What tf2onnx says while it works. It goes on after errors, which only its log tells.

A translation counts only when the log has no error: without a look at it, an operator that has no
counterpart stays in the graph, which nothing can load.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from serve.conversion.faults import failed
from serve.conversion.graphs.names import without_calls
from serve.core.errors import ConversionFailed

_LOGGER = "tf2onnx"
_UNMAPPED = "Tensorflow op [%s: %s] is not supported"
_NOT_CONVERTED = "Failed to convert node"


class TranslationTalk(logging.Handler):
    """The errors that were said, in their order."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.errors: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.errors.append(record)

    def fault(self, error: Exception | None = None) -> ConversionFailed | None:
        """The fault of the first error that names a node, else of any; None when none was said."""
        for record in self.errors:
            if (found := _unmapped(record)) or (found := _not_converted(record)):
                return found
        if error is not None:
            return failed(
                "invalid_graph", f"tf2onnx fails with {type(error).__name__}: {_line(error)}"
            )
        if self.errors:
            return failed("invalid_graph", f"tf2onnx reports: {_line(self.errors[0].getMessage())}")
        return None


@contextmanager
def heard() -> Iterator[TranslationTalk]:
    """Listen to tf2onnx."""
    talk, logger = TranslationTalk(), logging.getLogger(_LOGGER)
    logger.addHandler(talk)
    try:
        yield talk
    finally:
        logger.removeHandler(talk)


def _unmapped(record: logging.LogRecord) -> ConversionFailed | None:
    if record.msg != _UNMAPPED or not isinstance(record.args, tuple):
        return None
    node, operator = map(str, record.args)
    node = without_calls(node)
    return failed(
        "unsupported_operator",
        f"{operator} has no ONNX equivalent (node {node})",
        operator=operator,
        node=node,
    )


def _not_converted(record: logging.LogRecord) -> ConversionFailed | None:
    """A handler refused the node; its summary holds the operator, and the exception says why."""
    if not str(record.msg).startswith(_NOT_CONVERTED) or not isinstance(record.args, tuple):
        return None
    name, handler, summary = record.args
    node = without_calls(str(name))
    raised = record.exc_info[1] if isinstance(record.exc_info, tuple) else None
    operator = _operator(str(summary)) or getattr(handler, "__qualname__", "").partition(".")[0]
    return failed(
        "unsupported_operator",
        f"{operator} cannot be converted in this form (node {node}): {_reason(raised)}",
        operator=operator,
        node=node,
    )


def _operator(summary: str) -> str:
    for line in summary.splitlines():
        if line.startswith("OP="):
            return line.removeprefix("OP=")
    return ""


def _reason(raised: object) -> str:
    return _line(raised).removeprefix("make_sure failure: ")


def _line(words: object) -> str:
    lines = [line.strip() for line in str(words).strip().splitlines() if line.strip()]
    return (lines or [type(words).__name__])[0][:300]
