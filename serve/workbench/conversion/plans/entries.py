"""An entry of the repository as a plan needs it: one ONNX file, how it is served, what it answers.

NAME/config.pbtxt · NAME/3/model.onnx · NAME/contract/…
"""

from dataclasses import dataclass
from pathlib import Path

from serve.core.errors import Invalid
from serve.core.versions import CONTRACT
from serve.model_files.reader import read_model
from serve.tensors.contracts import Case, read_contract
from serve.tensors.signature import ModelSignature
from serve.triton.config import Configuration, parse
from serve.triton.layout import ModelFolder
from serve.workbench.conversion.report import MODEL


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """One version of a model's folder; `config` is the text of config.pbtxt."""

    folder: Path
    version: int
    config: str
    signature: ModelSignature
    cases: tuple[Case, ...]

    @property
    def name(self) -> str:
        """The model's."""
        return self.folder.name

    @property
    def onnx(self) -> Path:
        """The ONNX file that every flavour comes of."""
        return self.folder / str(self.version) / MODEL

    @property
    def base(self) -> Configuration:
        """config.pbtxt, read."""
        return parse(self.config)

    @property
    def max_batch_size(self) -> int:
        """The largest batch that Triton sends; 0 for none."""
        return int(self.base.message.max_batch_size)

    @property
    def contract(self) -> Path | None:
        """The folder of the golden cases, if it has any."""
        return self.folder / CONTRACT if self.cases else None


async def read_entry(folder: Path) -> ModelEntry:
    """The newest version with an ONNX file; `Invalid` for what is no such entry."""
    model = _model(folder)
    versions = [n for n in model.versions() if (model.path / str(n) / MODEL).is_file()]
    if not versions:
        raise Invalid(
            f"'{folder}' has no version with a {MODEL}",
            try_this="pass --name NAME --out DIR to create an entry from a model",
        )
    text = model.config_text()
    if text is None:
        raise Invalid(
            f"'{folder}' has no config.pbtxt",
            why="a plan has to support the batch sizes that it allows",
            try_this=f"servegate convert trt {folder}/{versions[-1]}/{MODEL} --name NAME --out DIR",
        )
    signature = await read_model(model.path / str(versions[-1]) / MODEL)
    return ModelEntry(model.path, versions[-1], text, signature, read_contract(model.path).cases)


def _model(folder: Path) -> ModelFolder:
    """The folder under its whole path: its last part is the model's name."""
    return ModelFolder(folder.absolute())
