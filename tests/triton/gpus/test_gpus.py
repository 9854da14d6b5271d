"""What is known of GPUs: of dcgm-exporter, of NVML, of Triton, and when several tell it.

The form of dcgm-exporter's lines is that of `internal/pkg/rendermetrics/render_metrics.go`; fields
and units are those of its `etc/dcp-metrics-included.csv`, with what is switched off by default.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from serve.triton import metrics
from serve.triton.gpus import dcgm
from serve.triton.gpus.nvml import Nvml
from serve.triton.gpus.readings import Gpu, among, merged, of_triton
from serve.triton.metrics import GpuReading

HERE = Path(__file__).parent

# --- dcgm-exporter --------------------------------------------------------------------------------

MIB = 1 << 20
FIRST = "GPU-0a5f2b9e-7d32-4c7a-9c59-8b1a3e0f6d11"
SECOND = "GPU-51c7e0d4-1b8f-4f6e-a7d0-2f9b6c3e8a22"
WHOLE = (HERE / "dcgm_whole.txt").read_text()
MIG = (HERE / "dcgm_mig.txt").read_text()


def line(name: str, value: str, labels: str = "") -> str:
    return f'{name}{{gpu="0",UUID="{FIRST}",device="nvidia0"{labels}}} {value}\n'


def one(text: str) -> Gpu:
    (gpu,) = dcgm.read(text).values()
    return gpu


def test_a_whole_gpu_is_read_in_shares_bytes_and_watts() -> None:
    assert dcgm.read(WHOLE)[FIRST] == Gpu(
        "dcgm",
        utilization=0.87,
        sm_active=0.412706,
        tensor_active=0.11835,
        memory_used=20995.0 * MIB,
        memory_total=81559.0 * MIB,
        power=351.204,
    )


def test_a_gpu_that_is_idle_tells_0_and_what_it_does_not_tell_is_none() -> None:
    assert dcgm.read(WHOLE)[SECOND] == Gpu("dcgm", utilization=0.0, power=70.118)


def test_slices_are_told_apart_and_have_no_utilisation() -> None:
    gpus = dcgm.read(MIG)
    assert gpus == {
        f"{FIRST}/1": Gpu(
            "dcgm", memory_used=5.0 * MIB, memory_total=19960.0 * MIB, power=96.5, mig="3g.20gb"
        ),
        f"{FIRST}/5": Gpu(
            "dcgm",
            tensor_active=0.022137,
            memory_used=2968.0 * MIB,
            memory_total=9968.0 * MIB,
            mig="2g.10gb",
        ),
    }


def test_a_slice_has_no_utilisation_and_is_one_whatever_its_profile_is_called() -> None:
    old = ',GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"'
    assert one(line("DCGM_FI_DEV_GPU_UTIL", "0", old)) == Gpu("dcgm", mig="1g.5gb")
    unknown = ',GPU_I_PROFILE="<<<NULL>>>",GPU_I_ID="6"'
    assert list(dcgm.read(line("DCGM_FI_DEV_GPU_UTIL", "3", unknown))) == [f"{FIRST}/6"]


def test_only_the_gpus_of_a_pod_count_where_the_exporter_knows_pods() -> None:
    assert list(dcgm.read(MIG, pod="triton-0")) == [f"{FIRST}/5"]
    assert list(dcgm.read(WHOLE, pod="triton-0")) == [FIRST, SECOND]


def test_a_gpu_that_several_pods_share_is_one() -> None:
    text = line("DCGM_FI_DEV_GPU_UTIL", "40", ',pod="a"') + line(
        "DCGM_FI_DEV_GPU_UTIL", "40", ',pod="b"'
    )
    assert dcgm.read(text) == {FIRST: Gpu("dcgm", 0.4)}


def test_what_cannot_be_a_number_of_its_kind_is_none() -> None:
    utilization, power = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
    huge = ("9223372036854775792", "9223372036854775794", "2147483632")
    words = ("N/A", "ERROR - FAILED TO CONVERT TO STRING", "")
    for value in ("NaN", "+Inf", "-1", "101.5", *huge, *words):
        found = one(line(power, "100.000000") + line(utilization, value))
        assert found == Gpu("dcgm", power=100.0), value
    for value in ("NaN", "-5.000000", "140737488355328.000000"):
        assert one(line(power, value)).power is None, value


def test_a_ratio_that_rounding_brings_above_1_is_1() -> None:
    assert one(line("DCGM_FI_PROF_SM_ACTIVE", "1.000731")).sm_active == 1.0


def test_memory_has_the_total_that_is_told_and_none_while_a_part_is_missing() -> None:
    used = line("DCGM_FI_DEV_FB_USED", "100")
    assert (one(used).memory_used, one(used).memory_total) == (100.0 * MIB, None)
    assert one(line("DCGM_FI_DEV_FB_TOTAL", "49140") + used).memory_total == 49140.0 * MIB


def test_the_old_namespace_is_read_as_well() -> None:
    text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",uuid="{FIRST}",device="nvidia0"}} 12\n'
    assert dcgm.read(text) == {FIRST: Gpu("dcgm", 0.12)}


def test_what_is_about_no_gpu_tells_nothing_and_what_is_no_metrics_text_is_an_error() -> None:
    assert dcgm.read('DCGM_FI_DEV_POWER_USAGE{cpu="0",Hostname="node"} 90.000000\n') == {}
    assert dcgm.read("") == {}
    with pytest.raises(ValueError):
        dcgm.read("<html>bad gateway</html>")


# --- NVML, through its published binding, with a library of our own behind it ---------------------

GIB = 1 << 30
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
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-o", str(target), str(HERE / "fake_nvml.c")], check=True
    )
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


def test_without_a_driver_or_a_library_nothing_is_told(tmp_path: Path) -> None:
    target = tmp_path / "libnvidia-ml.so.1"  # which is no library: as good as none
    target.write_bytes(b"")
    assert asked(tmp_path) == {}
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


# --- several that tell of the same ---------------------------------------------------------------

# As tritonserver 2.51 writes them on a machine with two GPUs.
TRITON = (HERE / "triton_two_gpus.txt").read_text()
TOTAL = 85520809984.0


def test_triton_tells_what_it_reads_and_a_0_is_believed_of_a_gpu_that_was_busy_before() -> None:
    told = metrics.read(TRITON).gpus
    found = of_triton(told, ())
    assert found["GPU-1"] == Gpu(
        "triton", 0.63, memory_used=22014853120.0, memory_total=TOTAL, power=312.5
    )
    # it may be one that Triton could not read
    assert (found["GPU-2"].utilization, found["GPU-2"].memory_used) == (None, 0.0)
    assert of_triton(told, {"GPU-2"})["GPU-2"].utilization == 0.0


def test_no_gpu_has_no_memory_and_draws_no_power() -> None:
    told = {"GPU-1": GpuReading(0.5, 0.0, 0.0, 0.0)}
    assert of_triton(told, ()) == {"GPU-1": Gpu("triton", 0.5)}


def test_what_cannot_be_a_share_is_none() -> None:
    for value in (math.nan, -0.5, 1.5, math.inf):
        told = {"GPU-1": GpuReading(value, None, None, value if value != 1.5 else None)}
        assert of_triton(told, {"GPU-1"}) == {"GPU-1": Gpu("triton")}, value


def test_each_number_is_that_of_the_first_who_knows_it_and_only_such_are_named() -> None:
    triton = {"GPU-1": Gpu("triton", 0.6, memory_used=1.0)}
    dcgm_too = {"GPU-1": Gpu("dcgm", 0.7, sm_active=0.2, memory_used=2.0)}
    expected = Gpu("triton+dcgm", 0.6, sm_active=0.2, memory_used=1.0)
    assert merged((triton, dcgm_too)) == {"GPU-1": expected}
    assert merged((triton, {"GPU-1": Gpu("nvml", 0.7)})) == triton


def test_a_gpu_that_only_one_tells_of_is_kept() -> None:
    found = merged(({"GPU-1": Gpu("triton", 0.6)}, {"GPU-2": Gpu("dcgm", 0.1)}))
    assert list(found) == ["GPU-1", "GPU-2"]


def test_the_utilisation_of_a_gpu_that_is_cut_means_nothing() -> None:
    triton = {"GPU-1": Gpu("triton", 0.4, power=90.0)}
    cut = {"GPU-1/5": Gpu("dcgm", tensor_active=0.1, mig="2g.10gb")}
    assert merged((triton, cut))["GPU-1"] == Gpu("triton", power=90.0, mig="enabled")
    told = {"GPU-1": Gpu("nvml", mig="enabled")}
    assert merged((triton, told))["GPU-1"].utilization is None


def test_a_gpu_whose_name_begins_like_another_s_is_not_its_slice() -> None:
    found = merged(({"GPU-1": Gpu("dcgm", 0.4)}, {"GPU-12": Gpu("dcgm", 0.5)}))
    assert found["GPU-1"].utilization == 0.4


def test_others_gpus_are_left_out_where_triton_says_which_are_its_own() -> None:
    gpus = {"GPU-1": Gpu("dcgm"), "GPU-1/5": Gpu("dcgm"), "GPU-2": Gpu("dcgm")}
    assert list(among(gpus, {"GPU-1"})) == ["GPU-1", "GPU-1/5"]
    assert among(gpus, ()) == gpus
