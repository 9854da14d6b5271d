"""NVML, the library of NVIDIA's driver: it tells of the GPUs of this machine, and of no other.

`nvidia-ml-py` (module `pynvml`) binds it. Where that is not installed, or there is no driver,
nothing is told. Units of NVML: utilisation in percent, memory in bytes, power in milliwatts. A GPU
in MIG mode answers `NVML_ERROR_NOT_SUPPORTED` for its utilisation; a slice is a device of its own.
"""

import importlib
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from serve.triton.gpus.readings import CUT, Gpu, share, size, slice_of, watts

_log = logging.getLogger("servegate.admin")


class Nvml:
    """Asks the library; blocking, for threads. `load` gives it, ready to be asked, or None."""

    def __init__(self, load: Callable[[], Any | None] | None = None) -> None:
        self._load = load or loaded
        self._library: Any | None = None

    def __repr__(self) -> str:
        return f"<Nvml {'loaded' if self._library else 'not loaded'}>"

    def read(self) -> Mapping[str, Gpu]:
        """Every GPU by UUID, and every slice by that of its GPU and its number; or none."""
        self._library = self._library or self._load()
        library = self._library
        if library is None:
            return {}
        try:
            return dict(_devices(library))
        except library.NVMLError as error:
            _log.debug("NVML returns nothing: %s", error)
            self._library = None  # the driver may be another one after this
            return {}


def loaded() -> Any | None:
    """The library, initialised; None where there is none."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        _log.debug("there is no NVML: %s", error)
        return None
    return library


def _devices(library: Any) -> Iterator[tuple[str, Gpu]]:
    for index in range(library.nvmlDeviceGetCount()):
        handle = _told(library, library.nvmlDeviceGetHandleByIndex, index)
        uuid = None if handle is None else _told(library, library.nvmlDeviceGetUUID, handle)
        if uuid is None:
            continue  # it has fallen off the bus
        mode = _told(library, library.nvmlDeviceGetMigMode, handle)
        is_cut = mode is not None and mode[0] == library.NVML_DEVICE_MIG_ENABLE
        yield _text(uuid), _gpu(library, handle, CUT if is_cut else "")
        if is_cut:
            yield from _slices(library, handle, _text(uuid))


def _slices(library: Any, handle: Any, uuid: str) -> Iterator[tuple[str, Gpu]]:
    """Those of a GPU in MIG mode; numbers between them may be free."""
    for index in range(_told(library, library.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        part = _told(library, library.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
        if part is None:
            continue
        instance = _told(library, library.nvmlDeviceGetGpuInstanceId, part)
        name = _text(_told(library, library.nvmlDeviceGetName, part) or "")
        profile = name.partition(" MIG ")[2]  # "NVIDIA A100-SXM4-40GB MIG 1g.5gb"
        place = slice_of(uuid, index if instance is None else instance)
        yield place, _gpu(library, part, profile or CUT)


def _gpu(library: Any, handle: Any, mig: str) -> Gpu:
    rates = None if mig else _told(library, library.nvmlDeviceGetUtilizationRates, handle)
    memory = _told(library, library.nvmlDeviceGetMemoryInfo, handle)
    milliwatts = _told(library, library.nvmlDeviceGetPowerUsage, handle)
    return Gpu(
        "nvml",
        share(rates.gpu / 100) if rates is not None else None,
        memory_used=size(float(memory.used)) if memory is not None else None,
        memory_total=size(float(memory.total)) if memory is not None else None,
        power=watts(milliwatts / 1000) if milliwatts is not None else None,
        mig=mig,
    )


def _told(library: Any, ask: Callable[..., Any], *about: Any) -> Any | None:
    """None for what this GPU, or this driver, does not tell."""
    try:
        return ask(*about)
    except library.NVMLError:
        return None


def _text(value: Any) -> str:
    """Older bindings give bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)
