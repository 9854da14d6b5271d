"""Sources of a conversion: what they are, whether they are harmless, what is in them.

Nothing here imports TensorFlow, ONNX or HDF5; what only those can read is read by a child process.
"""

from serve.workbench.conversion.sources.checks import check_source
from serve.workbench.conversion.sources.folders import digest_of, size_of
from serve.workbench.conversion.sources.kinds import SourceKind
from serve.workbench.conversion.sources.operator_scan import Operator, scan
from serve.workbench.conversion.sources.operators import faults_of
from serve.workbench.conversion.sources.signatures import choose_signature, faults_of_tensors

__all__ = [
    "Operator",
    "SourceKind",
    "check_source",
    "choose_signature",
    "digest_of",
    "faults_of",
    "faults_of_tensors",
    "scan",
    "size_of",
]
