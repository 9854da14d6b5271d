"""Triton's backend `onnxruntime` on ONNX Runtime's Python package: it serves ONNX files.

Triton runs this folder in one Python process per model instance, and before that in a short-lived
one per version, to complete the configuration. It serves every model whose configuration says
`backend: "onnxruntime"` or `platform: "onnxruntime_onnx"`, and follows NVIDIA's C++ backend of
the same name, so that one config.pbtxt means the same to both: what is completed, which shapes
are accepted, how parameters and accelerators are called.

    complete   fill in inputs, outputs and max_batch_size where the configuration has none
    load       plan the providers, open the file, compare it with the configuration
    execute    group requests of equal shapes, run a group once, cut its answer up again;
               if a group fails, each of its requests runs alone: only the bad ones fail

Refused at load: implicit sequence state, ragged batches, batch_input, batch_output, decoupled
models. The GPU paths (CUDA, TensorRT) are not yet run on a GPU.

Triton's Python stub puts this folder on sys.path and imports `model`: the files here import each
other by name and nothing of the project around them.
"""

import json
import os
import re
from collections.abc import Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from onnx_runner import Feeds, Runner, WrongTensor, receive, send  # type: ignore[import-not-found]
from onnx_session import (  # type: ignore[import-not-found]
    locate,
    open_to_read,
    open_to_run,
    plain,
    plan_providers,
)
from onnx_signature import (  # type: ignore[import-not-found]
    Config,
    LoadError,
    OnnxSignature,
    check,
    complete,
)
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument


class TritonPythonModel:
    """One instance of one version. Triton prescribes the names of this class and its methods."""

    @staticmethod
    def auto_complete_config(auto_complete_model_config: Any) -> Any:
        config = auto_complete_model_config.as_dict()
        if (config["input"] or config.get("batch_input")) and config["output"]:
            return auto_complete_model_config
        filename = config["default_model_filename"] or "model.onnx"
        version = Path(pb_utils.get_model_dir(), "x").parents[len(Path(filename).parts) - 1]
        try:
            signature = OnnxSignature.read(open_to_read(locate(version, filename), config))
            default_batch = default_max_batch_size(server_command_line())
            complete(auto_complete_model_config, signature, default_batch)
        except LoadError as error:
            title = f"{config['name']} version {version.name}"
            raise pb_utils.TritonModelException(f"{title}: {error}") from None
        return auto_complete_model_config

    def initialize(self, args: Mapping[str, str]) -> None:
        self._title = f"{args['model_name']} version {args['model_version']}"
        config: Config = json.loads(args["model_config"])
        kind = args["model_instance_kind"].removeprefix("KIND_")
        device = int(args["model_instance_device_id"])
        try:
            providers = plan_providers(config, kind, device, ort.get_available_providers())
            version = Path(args["model_repository"], args["model_version"])
            path = locate(version, config["default_model_filename"])
            session = open_to_run(path, config, providers)
            signature = OnnxSignature.read(session)
            check(config, signature)
            self._runner = Runner(session, config, signature)
        except LoadError as error:  # raised anew: Triton shows the traceback to the caller
            raise pb_utils.TritonModelException(f"{self._title}: {error}") from None
        pb_utils.Logger.log_info(f"{self._title} runs on {', '.join(session.get_providers())}")

    def execute(self, requests: Sequence[Any]) -> list[Any]:
        responses: list[Any] = [None] * len(requests)
        groups: dict[Hashable, dict[int, Feeds]] = {}
        for index, request in enumerate(requests):
            try:
                inputs = self._runner.inputs
                feeds = {
                    item.name(): receive(inputs[item.name()], item) for item in request.inputs()
                }
            except WrongTensor as error:
                responses[index] = self._refusal(error, {})
                continue
            shapes = frozenset((name, array.shape[1:]) for name, array in feeds.items())
            groups.setdefault(shapes if self._runner.batched else index, {})[index] = feeds
        for group in groups.values():
            asked = {index: requests[index].requested_output_names() for index in group}
            wanted = set[str]().union(*asked.values())
            names = [name for name in self._runner.outputs if name in wanted]
            answers = self._runner.answer([*group.values()], names)
            for (index, feeds), answer in zip(group.items(), answers, strict=True):
                if isinstance(answer, Exception):
                    responses[index] = self._refusal(answer, feeds)
                else:
                    responses[index] = self._response(answer, asked[index])
        return responses

    def _response(self, answer: Feeds, asked: Collection[str]) -> Any:
        outputs = self._runner.outputs
        tensors = [send(outputs[name], array) for name, array in answer.items() if name in asked]
        return pb_utils.InferenceResponse(output_tensors=tensors)

    def _refusal(self, error: Exception, feeds: Feeds) -> Any:
        """An error that names the model and shows what it was given and what it wants."""
        shapes = [
            f"input '{name}' has shape ({','.join(map(str, array.shape))}), "
            f"the model file expects {self._runner.inputs[name].shown}"
            for name, array in feeds.items()
        ]
        blamed = isinstance(error, (WrongTensor, InvalidArgument))
        code = pb_utils.TritonError.INVALID_ARG if blamed else pb_utils.TritonError.INTERNAL
        text = ": ".join([self._title, *filter(None, ["; ".join(shapes)]), plain(error)])
        return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(text, code))


def default_max_batch_size(command_line: str) -> int:
    """The setting in the server's command line: a Python backend is told none of its settings."""
    setting = r"--backend-config[= ](?:(\w+),)?default-max-batch-size=(\d+)"
    found = dict(re.findall(setting, command_line))
    return int(found.get("onnxruntime") or found.get("python") or found.get("") or 4)


def server_command_line() -> str:
    try:
        words = Path(f"/proc/{os.getppid()}/cmdline").read_bytes()
    except OSError:
        return ""
    return words.replace(b"\0", b" ").decode(errors="replace")
