"""What is wrong with a graph's operators, told before anything of it is run or converted."""

from collections.abc import Collection, Iterable, Iterator

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.dangers import (
    CHECKPOINTS,
    DANGEROUS,
    NATIVE,
    NETWORK,
    PYTHON,
    RANDOM,
    listed,
)
from serve.workbench.conversion.sources.operator_scan import Operator

# What tf2onnx does not map, because it is gone or rewritten before it maps.
REWRITTEN = listed("""
    Assert NoOp Rank ReadVariableOp VarHandleOp VariableV2 Variable ResourceGather ResourceGatherNd
    Placeholder PlaceholderWithDefault Const StopGradient PreventGradient Snapshot Identity
    IdentityN Enter RefEnter Exit RefExit NextIteration LoopCond Switch Merge ControlTrigger
    TensorArrayV3 TensorArrayReadV3 TensorArrayWriteV3 TensorArrayGatherV3 TensorArrayScatterV3
    TensorArraySizeV3 TensorListPushBack TensorListPopBack TensorListElementShape EmptyTensorList
    QuantizeAndDequantizeV2 QuantizeAndDequantizeV3 QuantizeAndDequantizeV4
    QuantizeAndDequantizeV4Grad HashTable MutableHashTableV2 BroadcastArgs Conj
    PartitionedCall StatefulPartitionedCall If While Case StatelessCase
""")


def faults_of(
    operators: Iterable[Operator], *, known: Collection[str] | None
) -> tuple[ConversionFailed, ...]:
    """All faults, the worst first; `known` operators can be converted, None leaves that open."""
    kinds = list(operators)
    return (
        *_dangerous(kinds),
        *_python(kinds),
        *_random(kinds),
        *_strange(kinds),
        *_unsupported(kinds, known),
    )


def faults_of_loading(operators: Iterable[Operator]) -> tuple[ConversionFailed, ...]:
    """What a load must not run. It restores weights, so checkpoints may be read."""
    kinds = [each for each in operators if each.name not in CHECKPOINTS]
    return (*_dangerous(kinds), *_python(kinds))


def _dangerous(operators: Iterable[Operator]) -> Iterator[ConversionFailed]:
    for each in operators:
        if each.name in DANGEROUS or each.name.startswith("PrintV2("):
            what = "reads or writes files"
            what = "uses the network" if each.name in NETWORK else what
            what = "runs native code" if each.name in NATIVE else what
            yield _fault("dangerous_operator", each, what)


def _python(operators: Iterable[Operator]) -> Iterator[ConversionFailed]:
    for each in operators:
        if each.name in PYTHON:
            yield _fault("python_operator", each, "calls a function that the file does not contain")


def _random(operators: Iterable[Operator]) -> Iterator[ConversionFailed]:
    """An operator whose number is not needed does no harm: dropout that is switched off.

    Where a placeholder has a default, that may switch dropout off as well: whether it does is seen
    when the source is asked twice.
    """
    kinds = list(operators)
    has_default = any(each.name == "PlaceholderWithDefault" for each in kinds)
    for each in kinds:
        if has_default and each.name == "RandomUniform":
            continue
        if each.name in RANDOM and each.count > each.vanishing:
            yield _fault("not_deterministic", each, "draws random numbers")


def _strange(operators: Iterable[Operator]) -> Iterator[ConversionFailed]:
    for each in operators:
        if each.datatypes:
            kinds = " and ".join(each.datatypes)
            yield _fault("unsupported_datatype", each, f"computes in {kinds}")


def _unsupported(
    operators: Iterable[Operator], known: Collection[str] | None
) -> Iterator[ConversionFailed]:
    if known is None:
        return
    told = DANGEROUS | PYTHON | RANDOM | REWRITTEN
    for each in operators:
        is_named = each.name in known or each.name in told or each.name.startswith("PrintV2")
        if each.count > each.vanishing and not is_named:
            yield _fault("unsupported_operator", each, "is not supported by the converter")


def _fault(code: str, operator: Operator, what: str) -> ConversionFailed:
    node = operator.nodes[0] if operator.nodes else ""
    more = f" and {operator.count - 1} more" if operator.count > 1 else ""
    why = f"{operator.name} (node '{node}'{more}) {what}"
    return failed(code, why, operator=operator.name.partition("(")[0], node=node)
