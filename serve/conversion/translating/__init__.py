"""TensorFlow models as ONNX graphs. Imported in the child process of a conversion only.

`open_source` brings every kind of source to a SavedModel, `prepare` makes the copy that tf2onnx can
read, `translate` makes the graph, and `SourceModel` is what that graph is held against.
"""

from serve.conversion.translating.channels import channels_first
from serve.conversion.translating.handlers import known_operators
from serve.conversion.translating.opening import Opened, open_source
from serve.conversion.translating.preparing import prepare
from serve.conversion.translating.source_model import SourceModel
from serve.conversion.translating.translation import translate

__all__ = [
    "Opened",
    "SourceModel",
    "channels_first",
    "known_operators",
    "open_source",
    "prepare",
    "translate",
]
