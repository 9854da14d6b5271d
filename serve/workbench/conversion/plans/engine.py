"""A plan that is run by TensorRT itself, in the child process: inputs by name → outputs by name.

Memory of the GPU is taken through the driver (libcuda), which is there wherever a GPU can be used.
TensorRT works in the device's primary context, and so does this.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from serve.core.errors import ConversionFailed
from serve.tensors.datatypes import Array, Shape
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.plans.onsite import Failed


class GpuMemory:
    """The first GPU's memory; arrays are copied to it and from it."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._cuda = load("libcuda.so.1")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self._check(self._cuda.cuInit(0))
        self._check(self._cuda.cuDeviceGet(ctypes.byref(device), 0))
        self._check(self._cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
        self._check(self._cuda.cuCtxSetCurrent(context))

    def put(self, array: Array) -> int:
        """The address of a copy; at least one byte, so that an empty array has an address too."""
        address = self.take(array.nbytes)
        size = ctypes.c_size_t(array.nbytes)
        if array.nbytes:
            host = ctypes.c_void_p(array.ctypes.data)
            self._check(self._cuda.cuMemcpyHtoD_v2(ctypes.c_uint64(address), host, size))
        return address

    def take(self, size: int) -> int:
        """The address of so many bytes, zeros."""
        address, size = ctypes.c_uint64(), max(1, size)
        self._check(self._cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)))
        zero = (ctypes.c_uint64(address.value), ctypes.c_ubyte(0), ctypes.c_size_t(size))
        self._check(self._cuda.cuMemsetD8_v2(*zero))
        return address.value

    def wait(self) -> None:
        """Until all work on the GPU is done."""
        self._check(self._cuda.cuCtxSynchronize())

    def fetch(self, address: int, array: Array) -> None:
        """Copy into an array, when all work on the GPU is done."""
        if array.nbytes:
            host, size = ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes)
            self._check(self._cuda.cuMemcpyDtoH_v2(host, ctypes.c_uint64(address), size))

    def give_back(self, address: int) -> None:
        """The bytes at an address are free again."""
        self._check(self._cuda.cuMemFree_v2(ctypes.c_uint64(address)))

    def _check(self, code: int) -> None:
        if code:
            raise Failed(f"CUDA error {code}")


class PlanModel:
    """A deserialised plan; `trt_build_failed` when TensorRT does not take it back.

    `library` is the module `tensorrt`.
    """

    def __init__(self, library: Any, plan: bytes, logger: Any, memory: GpuMemory) -> None:
        self._library = library
        self._runtime = library.Runtime(logger)  # lives as long as the engine
        self.engine = self._runtime.deserialize_cuda_engine(plan)
        if self.engine is None:
            raise _broken("TensorRT cannot load the plan that it has just built")
        self._memory = memory

    def layers(self, shapes: Mapping[str, Shape]) -> str:
        """What the engine inspector tells, as JSON; of types only where these shapes are fixed."""
        context = self.engine.create_execution_context()
        inspector = self.engine.create_engine_inspector()
        if context is not None:
            for name, shape in shapes.items():
                context.set_input_shape(name, shape)
            inspector.execution_context = context
        return str(inspector.get_engine_information(self._library.LayerInformationFormat.JSON))

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs for one batch."""
        context = self.engine.create_execution_context()
        if context is None:
            raise _broken("there is not enough GPU memory to run it")
        here: dict[str, Array] = {}  # tensors in this process's memory, kept until it has run
        with self._addresses() as addresses:
            for name, array in inputs.items():
                given = np.ascontiguousarray(array, self._dtype(name))
                if not context.set_input_shape(name, tuple(given.shape)):
                    raise _broken(f"it rejects shape {list(given.shape)} for input '{name}'")
                if self._is_on_host(name):
                    here[name] = given
                    context.set_tensor_address(name, given.ctypes.data)
                else:
                    addresses[name] = self._memory.put(given)
                    context.set_tensor_address(name, addresses[name])
            outputs = {name: self._room(context, name) for name in self._names("OUTPUT")}
            for name, array in outputs.items():
                if self._is_on_host(name):
                    context.set_tensor_address(name, array.ctypes.data)
                else:
                    addresses[name] = self._memory.take(array.nbytes)
                    context.set_tensor_address(name, addresses[name])
            if not context.execute_async_v3(0):
                raise _broken("TensorRT could not run it")
            self._memory.wait()
            for name, array in outputs.items():
                if name in addresses:
                    self._memory.fetch(addresses[name], array)
        return outputs

    def _is_on_host(self, name: str) -> bool:
        """Whether TensorRT reads or writes it there: the values of a shape.

        Source: TensorRT, "Working with Dynamic Shapes", shape tensors; ICudaEngine's
        getTensorLocation.
        """
        location = self.engine.get_tensor_location(name)
        return bool(location == self._library.TensorLocation.HOST)

    @contextmanager
    def _addresses(self) -> Iterator[dict[str, int]]:
        addresses: dict[str, int] = {}
        try:
            yield addresses
        finally:
            for address in addresses.values():
                self._memory.give_back(address)

    def _names(self, mode: str) -> list[str]:
        wanted = getattr(self._library.TensorIOMode, mode)
        names = [self.engine.get_tensor_name(at) for at in range(self.engine.num_io_tensors)]
        return [name for name in names if self.engine.get_tensor_mode(name) == wanted]

    def _room(self, context: Any, name: str) -> Array:
        shape = tuple(context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise _broken(f"the shape of output '{name}' depends on input values")
        return np.empty(shape, self._dtype(name))

    def _dtype(self, name: str) -> np.dtype[Any]:
        try:
            return np.dtype(self._library.nptype(self.engine.get_tensor_dtype(name)))
        except TypeError as error:
            raise failed("unsupported_datatype", f"tensor '{name}': {error}") from error


def _broken(why: str) -> ConversionFailed:
    return failed("trt_build_failed", why, hint="serve the ONNX file, which runs everywhere")
