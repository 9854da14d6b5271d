"""An MLflow model folder: its ONNX flavour can be pushed; where it comes from becomes tags.

The format of `MLmodel`: https://mlflow.org/docs/latest/ml/model/ (YAML; `flavors`, `run_id`,
`mlflow_version`, `model_uuid`, `signature` with `inputs` and `outputs` as JSON texts).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from serve.cli.onnx_file import ReadModel, read_onnx_file
from serve.cli.pieces import PushSource, read_small
from serve.core.errors import Invalid

MLMODEL = "MLmodel"
CONVERTIBLE = ("tensorflow", "keras")
_LONGEST_TAG = 1000  # characters
_WAYS: Mapping[str, str] = MappingProxyType(
    {
        "sklearn": "skl2onnx.to_onnx(model, X[:1], options={'zipmap': False}), then push it",
        "pytorch": "torch.onnx.export(model, example, 'model.onnx'), then push that file",
        "xgboost": "onnxmltools.convert_xgboost(model, …), then push the .onnx file",
        "lightgbm": "onnxmltools.convert_lightgbm(model, zipmap=False, …), then push it",
        "transformers": "optimum-cli export onnx, then push the .onnx file",
    }
)


@dataclass(frozen=True, slots=True)
class MlflowFlavours:
    """What an `MLmodel` file says. `model_file` is that of the ONNX flavour, empty without one."""

    names: tuple[str, ...]
    model_file: str = ""
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    version: str = ""

    @property
    def convertible(self) -> str:
        """The flavour that could be converted, or empty."""
        return next((name for name in CONVERTIBLE if name in self.names), "")


def read_mlflow_folder(
    folder: Path, flavours: MlflowFlavours, name: str, read_model: ReadModel
) -> PushSource:
    """The folder's ONNX file; `Invalid` when it lies elsewhere or is no model."""
    path = (folder / flavours.model_file).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise Invalid(f"{folder / MLMODEL} refers to a model outside its folder")
    source = read_onnx_file(path, name, read_model)
    tools = MappingProxyType({"mlflow": flavours.version} if flavours.version else {})
    return replace(
        source, kind="mlflow", name=folder.resolve().name, tags=flavours.tags, tools=tools
    )


def read_flavours(folder: Path) -> MlflowFlavours:
    """Read `MLmodel`; `Invalid` when it is not what MLflow writes."""
    import yaml

    path = folder / MLMODEL
    try:
        page = yaml.safe_load(read_small(path))
        flavours = page["flavors"]
        names = tuple(str(name) for name in flavours if name != "python_function")
        onnx = flavours.get("onnx") or {}
        model_file = str(onnx.get("data") or "model.onnx") if "onnx" in flavours else ""
    except (yaml.YAMLError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise Invalid(f"{path} is not a valid MLmodel file", why=str(error)) from error
    except RecursionError as error:
        raise Invalid(
            f"{path} is not a valid MLmodel file", why="it is nested too deeply"
        ) from error
    version = _text(page.get("mlflow_version"))
    return MlflowFlavours(names, model_file, MappingProxyType(dict(_tags(page))), version)


def refused(folder: Path, flavours: MlflowFlavours) -> Invalid:
    """Why a model of these flavours cannot be pushed, and what can be done about it."""
    names = ", ".join(flavours.names) or "none"
    way = next((_WAYS[name] for name in flavours.names if name in _WAYS), "")
    return Invalid(
        f"Triton cannot serve the MLflow model {folder}",
        why=f"its flavors are {names}, but only onnx can be served",
        try_this=way or "mlflow.onnx.log_model, then push that folder",
    )


def _tags(page: Mapping[str, Any]) -> Mapping[str, str]:
    signature = page.get("signature")
    parts = signature if isinstance(signature, dict) else {}
    found = {
        "mlflow.run_id": _text(page.get("run_id")),
        "mlflow.model_uuid": _text(page.get("model_uuid")),
        "mlflow.inputs": _text(parts.get("inputs")),
        "mlflow.outputs": _text(parts.get("outputs")),
    }
    return {name: text for name, text in found.items() if 0 < len(text) <= _LONGEST_TAG}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
