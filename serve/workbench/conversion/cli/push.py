"""`servegate model push --convert`: a converted model becomes a folder, and is pushed as one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from serve.cli.mlflow_folder import MLMODEL, read_flavours
from serve.cli.pieces import PushSource
from serve.cli.triton_folder import read_triton_folder
from serve.workbench.conversion.cli.arguments import limits_of, make_request
from serve.workbench.conversion.cli.conversion import Converting, show, workplace

if TYPE_CHECKING:
    from serve.cli.talk import CommandTalk
    from serve.workbench.conversion.limits import ConversionLimits
    from serve.workbench.conversion.report import ConversionReport
    from serve.workbench.conversion.request import ConversionRequest

__all__ = ["converted", "limits_of", "make_request"]  # what `model push` uses
_TOOLS = ("tensorflow", "keras", "tf2onnx", "onnx", "onnxruntime")  # that made the model


@contextmanager
def converted(
    request: "ConversionRequest",
    path: Path,
    name: str,
    *,
    talk: "CommandTalk",
    limits: "ConversionLimits",
) -> Iterator[PushSource]:
    """The entry of the converted model as a source, whose files are there within the context.

    `path` is what was asked to be pushed; `request.source` lies there. Contract and report are
    among the files.
    """
    with workplace("push") as folder:
        report = Converting(talk, limits).convert(
            request, name, folder, shown_out="DIR", loads=False
        )
        show(talk, report, is_data=False)
        source = read_triton_folder(folder / name)
        yield replace(
            source,
            kind=str(report.source.get("kind", "")),
            name=path.resolve().name,
            notes=(*source.notes, *(f"warning: {each}" for each in report.warnings)),
            tags=read_flavours(path).tags if (path / MLMODEL).is_file() else {},
            tools=_tools(report),
        )


def _tools(report: "ConversionReport") -> Mapping[str, str]:
    versions = report.versions
    plain = {"tensorflow": versions.get("tensorflow-cpu", ""), **versions}
    return MappingProxyType({name: plain[name] for name in _TOOLS if plain.get(name)})
