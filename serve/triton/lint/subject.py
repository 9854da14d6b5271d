"""What lint looks at, and what it finds."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any, NamedTuple

from tritonclient.grpc import model_config_pb2

from serve.core.errors import Invalid
from serve.core.flavours import VersionFlavours
from serve.core.versions import CONFIG, CONTRACT, DOCUMENTS, VersionFile
from serve.tensors.signature import ModelSignature, ModelTensor
from serve.triton.config import Configuration
from serve.triton.flavoured import configured, refused_overrides
from serve.triton.lint.backends import (
    TENSORFLOW_FILES,
    backend_of_file,
    default_file,
    of_platform,
)

_EMPTY = model_config_pb2.ModelConfig()
_READABLE = (".onnx", ".plan")
_MANY_GPUS = 64  # where a flavour runs there are GPUs, nobody knows how many


class Severity(StrEnum):
    """An error keeps a version from being published; a warning goes with it."""

    ERROR = "error"
    WARNING = "warning"


class LintFinding(NamedTuple):
    """What a rule answers: the field as people write it, why it is wrong, how to mend it."""

    field: str
    why: str
    fix: str


Findings = Iterator[LintFinding]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding of one rule; as text it is one sentence."""

    rule: str
    severity: Severity
    field: str
    why: str
    fix: str

    def __str__(self) -> str:
        return f"{self.field}: {self.why}. Fix: {self.fix} [{self.rule}]"

    def to_json(self) -> dict[str, str]:
        """Plain values for `json.dumps`."""
        return {
            "rule": self.rule,
            "severity": str(self.severity),
            "field": self.field,
            "why": self.why,
            "fix": self.fix,
        }


@dataclass(frozen=True, slots=True)
class LintSubject:
    """One version of a model. `config` is None when there is no config.pbtxt.

    `files` have the paths of an upload: `1/model.onnx`, `labels.txt`. `signature` is None when no
    reader knows the file. `others` are the models that the steps of an ensemble may name; `gpus`
    is how many GPUs the Tritons have that will hold it, None when that is not known. `flavours` is
    what flavours.json says, or empty; by flavour, `signatures` are what their files say and `plans`
    what plans.json says of those that are TensorRT plans. `preprocessing` is what
    preprocessing.json says, `output_kinds` what outputs.json says, empty where there is none.
    `unverified` is why nothing verifies the model, as conversion.json says, or empty.
    """

    name: str
    config: Configuration | None
    files: tuple[VersionFile, ...]
    signature: ModelSignature | None = None
    others: Mapping[str, Configuration] = field(default_factory=lambda: MappingProxyType({}))
    gpus: int | None = None
    flavours: str = ""
    signatures: Mapping[str, ModelSignature] = field(default_factory=lambda: MappingProxyType({}))
    plans: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    output_kinds: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    unverified: str = ""

    @property
    def message(self) -> Any:
        """The configuration as protobuf; an empty one where there is none: Triton completes it."""
        return _EMPTY if self.config is None else self.config.message

    @property
    def version_files(self) -> frozenset[str]:
        """Paths below the version folder, without its number."""
        parts = (file.path.partition("/") for file in self.files)
        return frozenset(rest for first, _, rest in parts if first.isdigit() and rest)

    @property
    def model_files(self) -> frozenset[str]:
        """Paths of the files beside config.pbtxt that Triton sees."""
        paths = [file.path for file in self.files]
        return frozenset(
            path
            for path in paths
            if not path.partition("/")[0].isdigit()
            and path not in DOCUMENTS | {CONFIG}
            and not path.startswith(f"{CONTRACT}/")
        )

    @property
    def is_ensemble(self) -> bool:
        """Whether it is made of other models."""
        message = self.message
        return bool(message.platform == "ensemble" or message.HasField("ensemble_scheduling"))

    @property
    def backend(self) -> str:
        """The backend that will run it: as configured, else what the files say; or empty."""
        message = self.message
        if message.backend or message.platform:
            return str(message.backend or of_platform(message.platform))
        return next(filter(None, map(backend_of_file, sorted(self.version_files))), "")

    @property
    def model_file(self) -> str:
        """The file or folder that its backend opens; empty where it has no fixed name."""
        return str(self.message.default_model_filename or default_file(self.backend))

    @property
    def readable(self) -> str:
        """The model file, or a SavedModel's folder, that `read_model` knows; empty if none is here.

        Below the version folder; `.` is the version folder itself.
        """
        if self.backend in ("onnxruntime", "tensorrt"):
            inner = f"{self.model_file}/model.onnx"  # a folder keeps weights beside the ONNX file
            return next(
                (name for name in (inner, self.model_file) if name in self.version_files), ""
            )
        folders = (name for name in TENSORFLOW_FILES if _saved_in(name) in self.version_files)
        return next(folders, "")

    @property
    def readable_flavours(self) -> Mapping[str, str]:
        """The files of flavours that `read_model` knows, by the flavour's name."""
        try:
            flavours = VersionFlavours.parse(self.flavours).preferred
        except Invalid:
            return {}
        return {
            one.name: one.file
            for one in flavours
            if one.file.endswith(_READABLE) and one.file in self.version_files
        }

    @property
    def flavoured(self) -> "Mapping[str, LintSubject]":
        """Each flavour as a version of its own, by its name; those that cannot be are left out."""
        if self.config is None:
            return {}
        try:
            flavours = VersionFlavours.parse(self.flavours).preferred
        except Invalid:
            return {}
        found: dict[str, LintSubject] = {}
        for one in flavours:
            try:
                config = configured(self.config, one)
                is_refused = bool(refused_overrides(one))
            except Invalid:
                continue
            if is_refused:
                continue
            is_same = not one.backend and one.file in ("", self.model_file)
            own = self.signature if is_same else self.signatures.get(one.name)
            on_gpu = one.needs.gpu or bool(one.needs.compute_capability)
            found[one.name] = replace(
                self,
                config=config,
                signature=own,
                gpus=self.gpus or (_MANY_GPUS if on_gpu else self.gpus),
                flavours="",
            )
        return found

    def has_version_file(self, name: str) -> bool:
        """Whether there is a file or a folder of that name in the version folder."""
        return any(path == name or path.startswith(f"{name}/") for path in self.version_files)

    @property
    def inputs(self) -> Mapping[str, ModelTensor]:
        """Required inputs of the model file by name; empty when they are not known."""
        return {} if self.signature is None else {spec.name: spec for spec in self.signature.inputs}

    @property
    def outputs(self) -> Mapping[str, ModelTensor]:
        """Outputs of the model file by name; empty when they are not known."""
        if self.signature is None:
            return {}
        return {spec.name: spec for spec in self.signature.outputs}

    @property
    def defaulted(self) -> Mapping[str, ModelTensor]:
        """Inputs that have a value in the model file, by name: callers may leave them out."""
        facts = {} if self.signature is None else self.signature.facts
        return {
            each["name"]: ModelTensor(each["name"], each["datatype"], _shape(each["shape"]))
            for each in facts.get("defaulted", ())
        }


def _saved_in(folder: str) -> str:
    return PurePosixPath(folder, "saved_model.pb").as_posix()


def _shape(sizes: list[int] | None) -> tuple[int, ...] | None:
    return None if sizes is None else tuple(sizes)
