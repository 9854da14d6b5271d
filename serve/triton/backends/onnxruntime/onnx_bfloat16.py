"""BF16 tensors, which numpy does not have: here they are their bits, in arrays of uint16.

Triton's stub gives and takes them as DLPack capsules only, ONNX Runtime as OrtValues. So this file
reads and writes memory: a DLTensor begins with its data pointer, and has the code of its type
behind the pointer (8 bytes), the device (8) and the rank (4).
"""

import ctypes
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime as ort
import triton_python_backend_utils as pb_utils
from numpy.typing import NDArray

Bits = NDArray[np.uint16]

ONNX_BFLOAT16 = 16
DLPACK_BFLOAT = 4
TYPE_CODE = 20  # offset in DLTensor
LIVE, USED = b"dltensor", b"used_dltensor"  # names of a capsule; Python keeps the pointers

python = ctypes.pythonapi
python.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
python.PyCapsule_GetPointer.restype = ctypes.c_void_p
python.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)


def from_triton(tensor: Any) -> Bits:
    capsule = tensor.to_dlpack()  # its memory lives as long as this name
    address = python.PyCapsule_GetPointer(capsule, LIVE)
    data = ctypes.c_void_p.from_address(address).value
    return copy(data or 0, tensor.shape())


def to_triton(name: str, array: Bits) -> Any:
    capsule = array.copy().__dlpack__()
    address = python.PyCapsule_GetPointer(capsule, LIVE)
    ctypes.c_uint8.from_address(address + TYPE_CODE).value = DLPACK_BFLOAT
    tensor = pb_utils.Tensor.from_dlpack(name, capsule)
    # The stub marks it used by another name than numpy looks for, which would free it once more.
    python.PyCapsule_SetName(capsule, USED)
    return tensor


def to_value(array: Bits) -> ort.OrtValue:
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, ONNX_BFLOAT16)


def from_value(value: ort.OrtValue) -> Bits:
    return copy(value.data_ptr(), value.shape())


def copy(address: int, shape: Sequence[int]) -> Bits:
    values = (ctypes.c_uint16 * math.prod(shape)).from_address(address)
    return np.array(values, np.uint16).reshape(shape)
