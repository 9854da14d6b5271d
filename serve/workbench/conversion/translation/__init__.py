"""TensorFlow models as ONNX graphs. Imported in the child process of a conversion only.

`open_source` brings every kind of source to a SavedModel, `prepare` makes the copy that tf2onnx can
read, `translate` makes the graph, and `SourceModel` is what that graph is held against.
"""

from serve.workbench.conversion.translation.handlers import known_operators
from serve.workbench.conversion.translation.prepared_copy import prepare
from serve.workbench.conversion.translation.source_kinds import OpenedSource, open_source
from serve.workbench.conversion.translation.source_model import SourceModel
from serve.workbench.conversion.translation.translation import channels_first, translate

__all__ = [
    "OpenedSource",
    "SourceModel",
    "channels_first",
    "known_operators",
    "open_source",
    "prepare",
    "translate",
]
