"""TensorFlow's operators that do more than compute: files, networks, code, randomness.

The lists were made by searching the names of all 1,908 operators of TensorFlow 2.21 for words such
as File, Dataset, Summary, Rpc, Random. An operator that is in none of them, and that the converter
does not know, is refused as well where its value is needed, only with another word.
"""


def listed(names: str) -> frozenset[str]:
    """Names that stand in a text one after the other."""
    return frozenset(names.split())


FILES = listed("""
    ReadFile WriteFile MatchingFiles WholeFileReader WholeFileReaderV2 TextLineReader
    TextLineReaderV2 FixedLengthRecordReader FixedLengthRecordReaderV2 TFRecordReader
    TFRecordReaderV2 LMDBReader RecordInput ReaderRead ReaderReadV2 ReaderReadUpTo ReaderReadUpToV2
    TextLineDataset TFRecordDataset TFRecordDatasetV2 FixedLengthRecordDataset
    FixedLengthRecordDatasetV2 LMDBDataset ExperimentalLMDBDataset SqlDataset ExperimentalSqlDataset
    MatchingFilesDataset ExperimentalMatchingFilesDataset CSVDataset CSVDatasetV2
    ExperimentalCSVDataset SaveDataset SaveDatasetV2 LoadDataset SnapshotDataset SnapshotDatasetV2
    SnapshotDatasetReader SnapshotNestedDatasetReader SnapshotChunkDataset ListSnapshotChunksDataset
    DatasetToTFRecord ExperimentalDatasetToTFRecord CacheDataset CacheDatasetV2 SaveSlices
    MergeV2Checkpoints DistributedSave LoadAndRemapMatrix GenerateVocabRemapping
    InitializeTableFromTextFile InitializeTableFromTextFileV2 FixedUnigramCandidateSampler
    CreateSummaryFileWriter CreateSummaryDbWriter SummaryWriter ImportEvent WriteSummary
    WriteScalarSummary WriteHistogramSummary WriteImageSummary WriteAudioSummary WriteGraphSummary
    WriteRawProtoSummary StatsAggregatorSetSummaryWriter DumpTensor CalibrationStatisticsSaver
    DebugIdentity DebugIdentityV2 DebugIdentityV3 DebugNanCount DebugNumericSummary
    DebugNumericSummaryV2 FileSystemSetConfiguration
""")
CHECKPOINTS = listed("Save SaveV2 Restore RestoreV2 RestoreSlice DTensorRestoreV2")
NETWORK = listed("""
    RpcServer RpcServerStart RpcServerRegister RpcClient RpcCall RpcCheckStatus RpcGetValue Rpc
    TryRpc DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3 DataServiceDatasetV4
    RegisterDataset RegisterDatasetV2 RemoteCall Send Recv _Send _Recv _HostSend _HostRecv
    BigQueryReader GenerateBigQueryReaderPartitions CollectiveInitializeCommunicator
    CollectiveReduce CollectiveReduceV2 CollectiveReduceV3 CollectiveGather CollectiveGatherV2
    CollectiveBcastSend CollectiveBcastSendV2 CollectiveBcastRecv CollectiveBcastRecvV2
    CollectivePermute CollectiveAllToAllV2 CollectiveAllToAllV3 CollectiveReduceScatterV2
    CollectiveAssignGroupV2
""")
NATIVE = listed("XlaCustomCall XlaCustomCallV2 XlaHostCompute _XlaHostComputeMlir")
DANGEROUS = FILES | CHECKPOINTS | NETWORK | NATIVE
PYTHON = listed("PyFunc PyFuncStateless EagerPyFunc")
RANDOM = listed("""
    RandomUniform RandomUniformInt RandomStandardNormal RandomShuffle RandomGamma RandomPoisson
    RandomPoissonV2 RandomCrop RandomDataset RandomDatasetV2 ExperimentalRandomDataset
    TruncatedNormal ParameterizedTruncatedNormal Multinomial RiscRandomUniform
    SampleDistortedBoundingBox SampleDistortedBoundingBoxV2 UniformCandidateSampler
    LogUniformCandidateSampler LearnedUnigramCandidateSampler AllCandidateSampler
    ThreadUnsafeUnigramCandidateSampler StatefulRandomBinomial StatefulStandardNormal
    StatefulStandardNormalV2 StatefulTruncatedNormal StatefulUniform StatefulUniformInt
    StatefulUniformFullInt RngReadAndSkip RngSkip NonDeterministicInts XlaRngBitGenerator
    StatelessRandomUniform StatelessRandomUniformV2 StatelessRandomUniformInt
    StatelessRandomUniformIntV2 StatelessRandomUniformFullInt StatelessRandomUniformFullIntV2
    StatelessRandomNormal StatelessRandomNormalV2 StatelessTruncatedNormal
    StatelessTruncatedNormalV2 StatelessMultinomial StatelessRandomPoisson StatelessRandomBinomial
    StatelessRandomGammaV2 StatelessRandomGammaV3 StatelessParameterizedTruncatedNormal
    StatelessSampleDistortedBoundingBox StatelessShuffle RandomIndexShuffle Timestamp
""")
