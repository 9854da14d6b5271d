"""SavedModels written byte by byte: nodes, functions, signatures, objects, assets."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from serve.wire.protobuf import field, number

FLOAT, BFLOAT16 = 1, 14
DEFAULT = "serving_default"


def text(key: int, value: str) -> bytes:
    return field(key, value.encode())


def entry(key: str, value: bytes) -> bytes:
    """An entry of a map."""
    return text(1, key) + field(2, value)


def function_name(name: str) -> bytes:
    """An AttrValue that names a function."""
    return field(10, text(1, name))


def data_type(code: int) -> bytes:
    """An AttrValue that is a data type."""
    return number(6, code)


def node(
    name: str,
    operator: str,
    *inputs: str,
    calls: Sequence[str] = (),
    attributes: Mapping[str, bytes] | None = None,
) -> bytes:
    given = {f"f{place}": function_name(each) for place, each in enumerate(calls)}
    given |= attributes or {}
    return (
        text(1, name)
        + text(2, operator)
        + b"".join(text(3, each) for each in inputs)
        + b"".join(field(5, entry(key, value)) for key, value in given.items())
    )


def function(name: str, nodes: Sequence[bytes], *results: str) -> bytes:
    """A FunctionDef; `results` are names as `node:output:0`."""
    returned = (
        field(4, text(1, f"r{place}") + text(2, each)) for place, each in enumerate(results)
    )
    body = b"".join(field(3, each) for each in nodes)
    return field(1, text(1, name)) + body + b"".join(returned)


def tensor_info(kind: int, sizes: Sequence[int] | None = None, name: str = "graph/name:0") -> bytes:
    """A TensorInfo; without sizes its number of dimensions is unknown."""
    shape = number(3, 1)
    if sizes is not None:
        shape = b"".join(field(2, number(1, size % (1 << 64))) for size in sizes)
    return text(1, name) + number(2, kind) + field(3, shape)


def signature_def(inputs: Mapping[str, bytes], outputs: Mapping[str, bytes]) -> bytes:
    """A SignatureDef of these TensorInfos."""
    given = b"".join(field(1, entry(*each)) for each in inputs.items())
    taken = b"".join(field(2, entry(*each)) for each in outputs.items())
    return given + taken + text(3, "tensorflow/serving/predict")


def signature(*outputs: str) -> bytes:
    """A SignatureDef of one float `x`, whose outputs come from these tensors."""
    taken = {f"y{place}": tensor_info(FLOAT, name=each) for place, each in enumerate(outputs)}
    return signature_def({"x": tensor_info(FLOAT, name="x:0")}, taken)


def meta_graph(
    nodes: Sequence[bytes],
    functions: Sequence[bytes] = (),
    signatures: Mapping[str, bytes] | None = None,
    *,
    rest: bytes = b"",
    tag: str = "serve",
) -> bytes:
    library = field(2, b"".join(field(1, each) for each in functions))
    graph = b"".join(field(1, each) for each in nodes) + library
    named = b"".join(field(5, entry(*each)) for each in (signatures or {}).items())
    info = text(4, tag) + text(5, "2.21.0")
    return field(1, info) + field(2, graph) + named + rest


def saved(folder: Path, meta: bytes) -> Path:
    """A SavedModel's folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(number(1, 1) + field(2, meta))
    return folder


def calling(
    folder: Path, nodes: Sequence[bytes], *results: str, more: Sequence[bytes] = ()
) -> Path:
    """A SavedModel whose signature `serving_default` calls a function of these nodes."""
    main = [node("x", "Placeholder"), node("call", "StatefulPartitionedCall", "x", calls=["f"])]
    functions = [function("f", nodes, *results), *more]
    return saved(folder, meta_graph(main, functions, {DEFAULT: signature("call:0")}))


def loading(folder: Path, nodes: Sequence[bytes], *, name: str = "_initialize") -> Path:
    """A harmless SavedModel with an object whose function a load runs."""
    main = [node("x", "Placeholder")]
    owner = field(1, number(1, 1) + text(2, name))
    held = field(6, text(1, "init"))
    objects = field(7, field(1, owner) + field(1, held))
    signatures = {DEFAULT: signature("x:0")}
    return saved(folder, meta_graph(main, [function("init", nodes)], signatures, rest=objects))
