"""What the converter and Keras know: operators that are mapped at opset 18, and names of layers.

The lists stand here so that a source can be inspected where TensorFlow is not installed. They are
those of tf2onnx 1.17 with our own handlers, and of Keras 3.15; a test holds them against both.
"""

from serve.workbench.conversion.sources.dangers import listed

KNOWN = listed(
    """
    Abs Acos Acosh Add AddN AddV2 AdjustContrastv2 AdjustHue AdjustSaturation All Any ArgMax
    ArgMin AsString Asin Asinh Atan Atan2 Atanh AvgPool AvgPool3D BatchMatMul BatchMatMulV2
    BatchMatMulV3 BatchToSpaceND BiasAdd BiasAddV1 Bincount BitwiseAnd BitwiseOr BitwiseXor
    BroadcastTo CTCGreedyDecoder Cast Ceil CheckNumerics ClipByValue CombinedNonMaxSuppression
    ComplexAbs Concat ConcatV2 Const Conv2D Conv2DBackpropInput Conv3D Conv3DBackpropInputV2 Cos
    Cosh CropAndResize CudnnRNN Cumprod Cumsum DenseBincount DenseToDenseSetOperation
    DepthToSpace DepthwiseConv2dNative Div DivNoNan DynamicPartition DynamicStitch Einsum Elu
    EnsureShape Equal Erf Erfc Exp ExpandDims ExtractImagePatches FFT FIFOQueueV2
    FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars Fill Floor FloorDiv FloorMod FusedBatchNorm
    FusedBatchNormV2 FusedBatchNormV3 Gather GatherNd GatherV2 Greater GreaterEqual HashTableV2
    Identity IdentityN If Invert InvertPermutation IsFinite IsInf IsNan IteratorGetNext
    IteratorV2 LRN LSTMBlockCell LeakyRelu LeftShift Less LessEqual Log LogSoftmax LogicalAnd
    LogicalNot LogicalOr LookupTableFindV2 LookupTableSizeV2 MatMul MatrixBandPart
    MatrixDeterminant MatrixDiag MatrixDiagPart MatrixDiagPartV2 MatrixDiagPartV3 MatrixDiagV2
    MatrixDiagV3 MatrixSetDiagV3 Max MaxPool MaxPool3D MaxPoolV2 MaxPoolWithArgmax Maximum Mean
    Min Minimum MirrorPad Mul Multinomial Neg NoOp NonMaxSuppressionV2 NonMaxSuppressionV3
    NonMaxSuppressionV4 NonMaxSuppressionV5 NotEqual OneHot OnesLike Pack Pad PadV2
    ParallelDynamicStitch Placeholder PlaceholderV2 PlaceholderWithDefault Pow Prod
    QueueDequeueManyV2 QueueDequeueUpToV2 QueueDequeueV2 RFFT RFFT2D RaggedGather RaggedRange
    RaggedTensorFromVariant RaggedTensorToSparse RaggedTensorToTensor RaggedTensorToVariant
    RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt Range RealDiv Reciprocal
    Relu Relu6 Reshape ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor
    ReverseSequence ReverseV2 RightShift Rint Roll Round Rsqrt SampleDistortedBoundingBox
    SampleDistortedBoundingBoxV2 ScatterNd SegmentMax SegmentMean SegmentMin SegmentProd
    SegmentSum Select SelectV2 Selu Shape Sigmoid Sign Sin Sinh Size Slice Softmax
    SoftmaxCrossEntropyWithLogits Softplus Softsign SpaceToBatchND SpaceToDepth
    SparseFillEmptyRows SparseReshape SparseSegmentMean SparseSegmentMeanWithNumSegments
    SparseSegmentSqrtN SparseSegmentSqrtNWithNumSegments SparseSegmentSum
    SparseSegmentSumWithNumSegments SparseSoftmaxCrossEntropyWithLogits SparseToDense Split
    SplitV Sqrt Square SquaredDifference Squeeze StatelessIf StatelessWhile StopGradient
    StridedSlice StringLower StringToNumber StringUpper Sub Sum Tan Tanh TensorListFromTensor
    TensorListGetItem TensorListLength TensorListReserve TensorListResize TensorListSetItem
    TensorListStack TensorScatterAdd TensorScatterMax TensorScatterMin TensorScatterSub
    TensorScatterUpdate Tile TopKV2 Transpose TruncateDiv Unique UniqueWithCounts Unpack
    UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Where While
    ZerosLike
    """
)

# Layers by the names under which an old HDF5 file, which tells no modules, can call them.
LAYERS = listed(
    """
    Activation ActivityRegularization AdaptiveAveragePooling1D AdaptiveAveragePooling2D
    AdaptiveAveragePooling3D AdaptiveMaxPooling1D AdaptiveMaxPooling2D AdaptiveMaxPooling3D Add
    AdditiveAttention AlphaDropout Attention AugMix AutoContrast Average AveragePooling1D
    AveragePooling2D AveragePooling3D AvgPool1D AvgPool2D AvgPool3D BatchNormalization
    Bidirectional CategoryEncoding CenterCrop Concatenate
    ContrastLimitedAdaptiveHistogramEqualization Conv1D Conv1DTranspose Conv2D Conv2DTranspose
    Conv3D Conv3DTranspose ConvLSTM1D ConvLSTM2D ConvLSTM3D Convolution1D Convolution1DTranspose
    Convolution2D Convolution2DTranspose Convolution3D Convolution3DTranspose Cropping1D
    Cropping2D Cropping3D CutMix Dense DepthwiseConv1D DepthwiseConv2D Discretization Dot
    Dropout ELU EinsumDense Embedding Equalization Flatten FlaxLayer Functional GRU GRUCell
    GaussianDropout GaussianNoise GlobalAveragePooling1D GlobalAveragePooling2D
    GlobalAveragePooling3D GlobalAvgPool1D GlobalAvgPool2D GlobalAvgPool3D GlobalMaxPool1D
    GlobalMaxPool2D GlobalMaxPool3D GlobalMaxPooling1D GlobalMaxPooling2D GlobalMaxPooling3D
    GroupNormalization GroupQueryAttention GroupedQueryAttention HashedCrossing Hashing Identity
    IndexLookup InputLayer InputSpec IntegerLookup JaxLayer LSTM LSTMCell Lambda Layer
    LayerNormalization LeakyReLU Masking MaxNumBoundingBoxes MaxPool1D MaxPool2D MaxPool3D
    MaxPooling1D MaxPooling2D MaxPooling3D Maximum MelSpectrogram Minimum MixUp Model
    MultiHeadAttention Multiply Normalization PReLU Permute Pipeline RMSNormalization RNN
    RandAugment RandomBrightness RandomColorDegeneration RandomColorJitter RandomContrast
    RandomCrop RandomElasticTransform RandomErasing RandomFlip RandomGaussianBlur
    RandomGrayscale RandomHue RandomInvert RandomPerspective RandomPosterization RandomRotation
    RandomSaturation RandomSharpness RandomShear RandomTranslation RandomZoom ReLU RepeatVector
    Rescaling Reshape Resizing ReversibleEmbedding STFTSpectrogram SeparableConv1D
    SeparableConv2D SeparableConvolution1D SeparableConvolution2D Sequential SimpleRNN
    SimpleRNNCell Softmax Solarization SpatialDropout1D SpatialDropout2D SpatialDropout3D
    SpectralNormalization StackedRNNCells StringLookup Subtract TFSMLayer TextVectorization
    TimeDistributed TorchModuleWrapper UnitNormalization UpSampling1D UpSampling2D UpSampling3D
    Wrapper ZeroPadding1D ZeroPadding2D ZeroPadding3D keras_export
    """
)
