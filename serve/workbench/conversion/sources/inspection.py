"""What is known of a source without converting it.

`inspect` tells everything about a source that can be known without converting it.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from serve.core.errors import ConversionFailed, Invalid
from serve.model_files.reader import ReaderTooSlow, TooLarge, ask
from serve.workbench.conversion.events import failure_facts, failure_of
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.checks import MOST
from serve.workbench.conversion.sources.keras_config import Layer
from serve.workbench.conversion.sources.kinds import SourceKind
from serve.workbench.conversion.sources.operator_scan import Operator

# --- what is known of a source without converting it ----------------------------------------------


_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Need:
    """What one flavour of the converted model needs; `lacks` are operators that it cannot take."""

    flavour: str
    needs: str
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Inspection:
    """A source. `signatures` by name, each `{"inputs": [spec …], "outputs": [spec …]}`.

    `size` in bytes, `digest` as `folders.digest_of` tells it, empty when the source is not whole.
    `chosen` is the signature that a conversion would take, empty when it would take none: `faults`
    say why, and everything else that it would end with. `operators` are of the chosen signature.
    `layers` stand in .keras and .h5. `memory`: bytes that a conversion needs, as an estimate.
    """

    name: str
    kind: SourceKind
    size: int = 0
    digest: str = ""
    tags: tuple[str, ...] = ()
    signatures: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS)
    chosen: str = ""
    operators: tuple[Operator, ...] = ()
    layers: tuple[Layer, ...] = ()
    faults: tuple[ConversionFailed, ...] = ()
    flavours: tuple[Need, ...] = ()
    memory: int = 0
    facts: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        return {
            "name": self.name,
            "kind": str(self.kind),
            "size": self.size,
            "digest": self.digest,
            "tags": list(self.tags),
            "signatures": dict(self.signatures),
            "chosen": self.chosen,
            "operators": [asdict(each) for each in self.operators],
            "layers": [asdict(each) for each in self.layers],
            "faults": [failure_facts(each) for each in self.faults],
            "flavours": [asdict(each) for each in self.flavours],
            "memory": self.memory,
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, page: Any) -> Self:
        """Read what `to_json` gave; `Invalid` for anything else."""
        try:
            return cls(
                str(page["name"]),
                SourceKind(page["kind"]),
                int(page["size"]),
                str(page["digest"]),
                tuple(page["tags"]),
                MappingProxyType(dict(page["signatures"])),
                str(page["chosen"]),
                tuple(_operator(each) for each in page["operators"]),
                tuple(Layer(**each) for each in page["layers"]),
                tuple(failure_of(each) for each in page["faults"]),
                tuple(_need(each) for each in page["flavours"]),
                int(page["memory"]),
                MappingProxyType(dict(page["facts"])),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid("the inspection is malformed", why=repr(error)) from error


def _operator(page: Any) -> Operator:
    return Operator(
        **{**page, "nodes": tuple(page["nodes"]), "datatypes": tuple(page["datatypes"])}
    )


def _need(page: Any) -> Need:
    return Need(page["flavour"], page["needs"], tuple(page["lacks"]))


# --- inspector ------------------------------------------------------------------------------------


_READER = "serve.workbench.conversion.sources.inspection_child"


async def inspect(
    path: Path,
    *,
    signature: str = "",
    timeout: float = 120.0,  # noqa: ASYNC109 — the child gets it as a limit as well
    memory: int = 2 << 30,
    most: int = MOST,
) -> Inspection:
    """Look into a source, in a child process under limits and without TensorFlow.

    What is wrong with it is among its `faults`. `ConversionFailed` for what is no source at all,
    and for what cannot be looked into within `timeout` seconds and `memory` bytes. Call it in the
    main thread, whose death the child notices.
    """
    try:
        page = await ask(_READER, path, signature, str(most), timeout=timeout, memory=memory)
    except ReaderTooSlow as error:
        raise failed("timed_out", error.why) from error
    except TooLarge as error:
        raise failed("out_of_memory", error.why) from error
    except Invalid as error:
        raise failed("source_corrupt", error.why) from error
    return Inspection.from_json(page)
