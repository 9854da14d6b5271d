"""NVML: through its published binding, with a library of our own behind it; and without either."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve.triton.gpus.nvml import Nvml
from serve.triton.gpus.readings import Gpu

GIB = 1 << 30
SOURCE = Path(__file__).with_name("fake_nvml.c")
ASK = """
import json
from serve.triton.gpus.nvml import Nvml
print(json.dumps({uuid: gpu.to_json() for uuid, gpu in Nvml().read().items()}))
"""


def asked(folder: Path) -> dict[str, Gpu]:
    """What a fresh process reads that finds the library in this folder."""
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env={**os.environ, "LD_LIBRARY_PATH": str(folder)},
        capture_output=True,
        text=True,
        check=True,
    )
    return {uuid: Gpu(**one) for uuid, one in json.loads(done.stdout).items()}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A folder with the library, as the driver installs it."""
    target = tmp_path / "libnvidia-ml.so.1"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(target), str(SOURCE)], check=True)
    return tmp_path


def test_gpus_and_slices_are_read_through_the_binding(library: Path) -> None:
    cut = {"memory_used": 3.0 * GIB, "memory_total": 10.0 * GIB}
    whole = {"memory_used": 3.0 * GIB, "memory_total": 40.0 * GIB, "power": 351.204}
    assert asked(library) == {
        "GPU-0": Gpu("nvml", 0.42, **whole),
        "GPU-1": Gpu("nvml", **whole, mig="enabled"),
        "GPU-1/1": Gpu("nvml", **cut, mig="3g.20gb"),
        "GPU-1/5": Gpu("nvml", **cut, mig="2g.10gb"),
        "GPU-3": Gpu("nvml", 0.07, power=351.204),
    }


def test_without_a_driver_nothing_is_told(tmp_path: Path) -> None:
    target = tmp_path / "libnvidia-ml.so.1"  # which is no library: as good as none
    target.write_bytes(b"")
    assert asked(tmp_path) == {}


def test_without_a_library_nothing_is_told() -> None:
    assert Nvml(lambda: None).read() == {}


class Failure(Exception):
    """As the binding raises it."""


class Library:
    """A driver that goes away: of the binding only what is reached then."""

    NVMLError = Failure

    def nvmlDeviceGetCount(self) -> int:
        raise Failure("Driver Not Loaded")


class Empty(Library):
    """A driver without any GPU."""

    def nvmlDeviceGetCount(self) -> int:
        return 0


def test_a_driver_that_goes_away_is_looked_for_again() -> None:
    libraries: list[Any] = [Library(), Empty()]
    nvml = Nvml(lambda: libraries.pop(0))
    assert (nvml.read(), nvml.read(), nvml.read()) == ({}, {}, {})
    assert libraries == []
