"""Which operators of ONNX TensorRT's parser takes, by the types that it computes them in.

Source: "Supported ONNX Operators" of onnx-tensorrt, docs/operators.md, for TensorRT 10.15, opsets 9
to 24; TensorRT 11 lists opset 25 as its highest. What 10.1 did not list is in `LATER`. STFT is left
out: 10.15 lists it for real input and constant frames only, older ones not at all.
"""

OPSETS = range(9, 26)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# FP32, FP16, BF16
FLOATS = _names(
    """
    Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv
    ConvTranspose Cos Cosh CumSum DeformConv Dropout Einsum Elu Erf Exp Floor GRU Gemm
    GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample GroupNormalization HardSigmoid HardSwish
    Hardmax ImageScaler InstanceNormalization IsInf LRN LSTM LayerNormalization LeakyRelu Log
    LogSoftmax LpNormalization LpPool MatMul MaxPool MeanVarianceNormalization Mish
    NonMaxSuppression NonZero PRelu ParametricSoftplus QuantizeLinear RNN RandomNormal
    RandomNormalLike RandomUniform RandomUniformLike Reciprocal Resize RoiAlign Round ScaledTanh
    Scan Selu Sigmoid Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Upsample
    """
)
# the same, INT32 and INT64
NUMBERS = _names(
    """
    Abs Add ArgMax ArgMin DepthToSpace Div Equal Gelu Greater GreaterOrEqual IsNaN Less LessOrEqual
    Max Mean Min Mod Mul Neg Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax
    ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Scatter ScatterElements ScatterND
    Shrink Sign SpaceToDepth Sub Sum TopK
    """
)
# the same, and BOOL
ANY = _names(
    """
    And Cast CastLike Concat Constant ConstantOfShape DequantizeLinear Expand EyeLike Flatten Gather
    GatherElements GatherND Identity If Loop Not OneHot Or Reshape ReverseSequence Shape Size Slice
    Split Squeeze Tile Transpose Trilu Unsqueeze Where Xor
    """
)
LATER = _names(
    """
    Attention BlackmanWindow HammingWindow HannWindow RMSNormalization RotaryEmbedding TensorScatter
    """
)
OPERATORS = FLOATS | NUMBERS | ANY | LATER
