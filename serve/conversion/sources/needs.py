"""What each flavour of a converted model would need, told from the operators of its source.

These are estimates of before: what TensorRT cannot take is told for certain from the ONNX file.
"""

from collections.abc import Iterable

from serve.conversion.sources.inspection import Need
from serve.conversion.sources.kinds import SourceKind

# The base is what TensorFlow and tf2onnx take for an empty graph, the rate what they took for a
# ResNet50: 3.2 GB for 102 MB of weights, each pass over the graph copying it.
BASE, RATE = 900 << 20, 24
ONNX_BASE, ONNX_RATE = 150 << 20, 4
_TEXTS = ("String", "LookupTable", "HashTable", "Regex", "ReduceJoin", "AsString", "Text")
_SPECTRA = ("RFFT", "IRFFT", "FFT", "IFFT", "STFT", "ComplexAbs")
_NOT_PARSED = (
    *("ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinear"),
    *("ai.onnx.ml.", "com.microsoft.", "STFT", "StringNormalizer", "TfIdfVectorizer"),
)


def memory_of(kind: SourceKind, weights: int) -> int:
    """Bytes that a conversion of so many bytes of weights takes at its peak, about."""
    base, rate = (ONNX_BASE, ONNX_RATE) if kind is SourceKind.ONNX else (BASE, RATE)
    return base + rate * weights


def needs_of(names: Iterable[str], datatypes: Iterable[str]) -> tuple[Need, ...]:
    """The three flavours. `names` are operators, of TensorFlow or of ONNX; none is no answer."""
    starts = (*_TEXTS, *_SPECTRA, *_NOT_PARSED)
    lacks = tuple(sorted({name for name in names if name.startswith(starts)}))
    if "BYTES" in set(datatypes):
        lacks = (*lacks, "BYTES (text as input or output)")
    return (
        Need("onnx", "any replica"),
        Need(
            "onnx+trt",
            "a GPU; ONNX Runtime runs the operators that TensorRT does not support",
            lacks,
        ),
        Need("plan", "the GPU architecture and TensorRT version that it was built with", lacks),
    )
