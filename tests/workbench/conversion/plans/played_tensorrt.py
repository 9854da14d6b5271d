"""Plays the module `tensorrt`: builds a plan that multiplies by two, and runs it on the processor.

`check_tensorrt.py` holds its names against the real bindings.
"""

import ctypes
import json
from types import SimpleNamespace
from typing import Any

import numpy as np

from .kit_scene import HEADER

LAYERS = {"Layers": [{"Name": "twice", "Outputs": [{"Format/Datatype": "Row major linear FP32"}]}]}


class Logger:
    last = "no tactic for node twice"


class OlderError(SimpleNamespace):
    """As TensorRT 8.6 has it: no names."""

    def desc(self) -> str:
        return str(self.text)


class ParserError(OlderError):
    def node_name(self) -> str:
        return str(self.name)

    def node_operator(self) -> str:
        return str(self.operator)


class Config:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.flags = {"TF32"}
        self.limits: dict[str, int] = {}
        self.profiles: list[Any] = []
        self.cache = b""

    def set_flag(self, flag: str) -> None:
        self.flags.add(flag)

    def clear_flag(self, flag: str) -> None:
        self.flags.remove(flag)

    def set_memory_pool_limit(self, pool: str, size: int) -> None:
        self.limits[pool] = size

    def add_optimization_profile(self, profile: Any) -> int:
        self.profiles.append(profile)
        return -1 if getattr(profile, "is_bad", False) else len(self.profiles) - 1

    def create_timing_cache(self, content: bytes) -> Any:
        self.cache = content
        return SimpleNamespace(serialize=lambda: content + b"+")

    def set_timing_cache(self, cache: Any, ignore_mismatch: bool) -> bool:
        return not ignore_mismatch


class ShapeProfile:
    def __init__(self) -> None:
        self.shapes: dict[str, tuple[Any, ...]] = {}
        self.is_bad = False

    def set_shape(self, name: str, *shapes: Any) -> None:
        self.shapes[name] = shapes
        self.is_bad = name == "bad"


class Engine:
    """One input x and one output y, twice the input."""

    num_io_tensors = 2

    def __init__(self, on_host: str = "") -> None:
        self.on_host = on_host  # the tensors that it wants in the memory of the process

    def get_tensor_name(self, at: int) -> str:
        return "xy"[at]

    def get_tensor_mode(self, name: str) -> str:
        return {"x": "INPUT", "y": "OUTPUT"}[name]

    def get_tensor_dtype(self, name: str) -> str:
        return "FLOAT"

    def get_tensor_location(self, name: str) -> str:
        return "HOST" if name in self.on_host else "DEVICE"

    def create_execution_context(self) -> "Context":
        return Context()

    def create_engine_inspector(self) -> Any:
        return SimpleNamespace(get_engine_information=lambda kind: json.dumps(LAYERS))


class Context:
    def __init__(self) -> None:
        self.shape: tuple[int, ...] = ()
        self.addresses: dict[str, int] = {}

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shape = shape
        return shape[0] <= 8

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return self.shape

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def execute_async_v3(self, stream: int) -> bool:
        count = int(np.prod(self.shape))
        x, y = (
            np.ctypeslib.as_array((ctypes.c_float * count).from_address(self.addresses[name]))
            for name in "xy"
        )
        y[:] = 2 * x
        return True


class Library:
    """The module. `errors` are what the parser complains of; `builds` is whether a plan comes."""

    __version__ = "10.13.2.6"
    NetworkDefinitionCreationFlag = SimpleNamespace(STRONGLY_TYPED=1)
    BuilderFlag = SimpleNamespace(TF32="TF32", VERSION_COMPATIBLE="VERSION_COMPATIBLE")
    HardwareCompatibilityLevel = SimpleNamespace(AMPERE_PLUS="AMPERE_PLUS")
    MemoryPoolType = SimpleNamespace(WORKSPACE="WORKSPACE")
    ProfilingVerbosity = SimpleNamespace(DETAILED="DETAILED")
    LayerInformationFormat = SimpleNamespace(JSON="JSON")
    TensorLocation = SimpleNamespace(DEVICE="DEVICE", HOST="HOST")
    TensorIOMode = SimpleNamespace(INPUT="INPUT", OUTPUT="OUTPUT")

    def __init__(self, *errors: Any, builds: bool = True, on_host: str = "") -> None:
        self.errors = errors
        self.on_host = on_host
        self.builds = builds
        self.config = Config()
        self.flags = 0

    def Builder(self, logger: Any) -> Any:
        def create_network(flags: int) -> object:
            self.flags = flags
            return object()

        return SimpleNamespace(
            create_network=create_network,
            create_builder_config=lambda: self.config,
            create_optimization_profile=ShapeProfile,
            build_serialized_network=lambda network, config: HEADER if self.builds else None,
        )

    def OnnxParser(self, network: Any, logger: Any) -> Any:
        return SimpleNamespace(
            parse=lambda model: not self.errors,
            num_errors=len(self.errors),
            get_error=self.errors.__getitem__,
        )

    def Runtime(self, logger: Any) -> Any:
        return SimpleNamespace(
            deserialize_cuda_engine=lambda plan: Engine(self.on_host) if plan else None
        )

    def nptype(self, kind: str) -> Any:
        return np.float32


class Driver:
    """Plays libcuda for an NVIDIA L4 whose memory is this process's; `code` answers every call."""

    def __init__(self, code: int = 0) -> None:
        self.blocks: dict[int, Any] = {}  # those not yet given back
        self.allocated = 0
        self._code = code

    def __getattr__(self, name: str) -> Any:
        assert name.startswith("cu")
        return lambda *words: self._code

    def cuDeviceGetName(self, name: Any, length: int, device: Any) -> int:
        name.value = b"NVIDIA L4"
        return self._code

    def cuDeviceGetAttribute(self, number: Any, attribute: int, device: Any) -> int:
        number._obj.value = {75: 8, 76: 9}[attribute]
        return self._code

    def cuMemAlloc_v2(self, address: Any, size: Any) -> int:
        block = ctypes.create_string_buffer(size.value)
        address._obj.value = ctypes.addressof(block)
        self.blocks[address._obj.value] = block
        self.allocated += 1
        return self._code

    def cuMemcpyHtoD_v2(self, there: Any, here: Any, size: Any) -> int:
        ctypes.memmove(there.value, here.value, size.value)
        return self._code

    def cuMemcpyDtoH_v2(self, here: Any, there: Any, size: Any) -> int:
        ctypes.memmove(here.value, there.value, size.value)
        return self._code

    def cuMemFree_v2(self, address: Any) -> int:
        del self.blocks[address.value]
        return self._code
