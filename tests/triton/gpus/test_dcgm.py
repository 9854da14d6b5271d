"""dcgm-exporter's text, as its templates write it: with and without MIG, with what is missing.

The form of the lines is that of `internal/pkg/rendermetrics/render_metrics.go`; fields and units
are those of `etc/dcp-metrics-included.csv`, with the lines in it that are switched off by default.
"""

import pytest

from serve.triton.gpus.dcgm import read
from serve.triton.gpus.readings import Gpu

MIB = 1 << 20
FIRST = "GPU-0a5f2b9e-7d32-4c7a-9c59-8b1a3e0f6d11"
SECOND = "GPU-51c7e0d4-1b8f-4f6e-a7d0-2f9b6c3e8a22"
WHOLE = f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 1980
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 351.204000
DCGM_FI_DEV_POWER_USAGE{{gpu="1",UUID="{SECOND}",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 70.118000
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 87
DCGM_FI_DEV_GPU_UTIL{{gpu="1",UUID="{SECOND}",pci_bus_id="00000000:2A:00.0",device="nvidia1",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 0
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 60000
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 20995
# HELP DCGM_FI_DEV_FB_RESERVED Framebuffer memory reserved (in MiB).
# TYPE DCGM_FI_DEV_FB_RESERVED gauge
DCGM_FI_DEV_FB_RESERVED{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 564
# HELP DCGM_FI_PROF_SM_ACTIVE The ratio of cycles an SM has at least 1 warp assigned.
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 0.412706
# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of cycles the tensor (HMMA) pipe is active.
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="0",UUID="{FIRST}",pci_bus_id="00000000:18:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-node-1",DCGM_FI_DRIVER_VERSION="550.90.07"}} 0.118350
"""  # noqa: E501
MIG = f"""\
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",Hostname="dcgm-exporter-sn5rp",container="",namespace="",pod=""}} 96.500000
# HELP DCGM_FI_DEV_FB_FREE Framebuffer memory free (in MiB).
# TYPE DCGM_FI_DEV_FB_FREE gauge
DCGM_FI_DEV_FB_FREE{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",Hostname="dcgm-exporter-sn5rp",container="",namespace="",pod=""}} 19955
DCGM_FI_DEV_FB_FREE{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",Hostname="dcgm-exporter-sn5rp",container="triton",namespace="serving",pod="triton-0"}} 7000
# HELP DCGM_FI_DEV_FB_USED Framebuffer memory used (in MiB).
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",Hostname="dcgm-exporter-sn5rp",container="",namespace="",pod=""}} 5
DCGM_FI_DEV_FB_USED{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",Hostname="dcgm-exporter-sn5rp",container="triton",namespace="serving",pod="triton-0"}} 2968
# HELP DCGM_FI_PROF_GR_ENGINE_ACTIVE Ratio of time the graphics engine is active.
# TYPE DCGM_FI_PROF_GR_ENGINE_ACTIVE gauge
DCGM_FI_PROF_GR_ENGINE_ACTIVE{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",Hostname="dcgm-exporter-sn5rp",container="triton",namespace="serving",pod="triton-0"}} 0.381124
# HELP DCGM_FI_PROF_PIPE_TENSOR_ACTIVE Ratio of cycles the tensor (HMMA) pipe is active.
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{gpu="0",UUID="{FIRST}",device="nvidia0",modelName="NVIDIA A100-SXM4-40GB",GPU_I_PROFILE="2g.10gb",GPU_I_ID="5",Hostname="dcgm-exporter-sn5rp",container="triton",namespace="serving",pod="triton-0"}} 0.022137
"""  # noqa: E501


def line(name: str, value: str, labels: str = "") -> str:
    return f'{name}{{gpu="0",UUID="{FIRST}",device="nvidia0"{labels}}} {value}\n'


def one(text: str) -> Gpu:
    (gpu,) = read(text).values()
    return gpu


def test_a_whole_gpu_is_read_in_shares_bytes_and_watts() -> None:
    assert read(WHOLE)[FIRST] == Gpu(
        "dcgm",
        utilization=0.87,
        sm_active=0.412706,
        tensor_active=0.11835,
        memory_used=20995.0 * MIB,
        memory_total=81559.0 * MIB,
        power=351.204,
    )


def test_a_gpu_that_is_idle_tells_0_and_what_it_does_not_tell_is_none() -> None:
    assert read(WHOLE)[SECOND] == Gpu("dcgm", utilization=0.0, power=70.118)


def test_slices_are_told_apart_and_have_no_utilisation() -> None:
    gpus = read(MIG)
    assert gpus == {
        f"{FIRST}/1": Gpu(
            "dcgm",
            memory_used=5.0 * MIB,
            memory_total=19960.0 * MIB,
            power=96.5,
            mig="3g.20gb",
        ),
        f"{FIRST}/5": Gpu(
            "dcgm",
            tensor_active=0.022137,
            memory_used=2968.0 * MIB,
            memory_total=9968.0 * MIB,
            mig="2g.10gb",
        ),
    }


def test_the_utilisation_that_old_exporters_tell_of_a_slice_is_not_believed() -> None:
    labels = ',GPU_I_PROFILE="1g.5gb",GPU_I_ID="7"'
    assert one(line("DCGM_FI_DEV_GPU_UTIL", "0", labels)) == Gpu("dcgm", mig="1g.5gb")


def test_a_slice_whose_profile_the_exporter_does_not_know_is_one_nevertheless() -> None:
    labels = ',GPU_I_PROFILE="<<<NULL>>>",GPU_I_ID="6"'
    assert list(read(line("DCGM_FI_DEV_GPU_UTIL", "3", labels))) == [f"{FIRST}/6"]


def test_only_the_gpus_of_a_pod_count_where_the_exporter_knows_pods() -> None:
    assert list(read(MIG, pod="triton-0")) == [f"{FIRST}/5"]


def test_all_gpus_count_where_no_line_is_about_the_pod() -> None:
    assert list(read(WHOLE, pod="triton-0")) == [FIRST, SECOND]


def test_a_gpu_that_several_pods_share_is_one() -> None:
    text = line("DCGM_FI_DEV_GPU_UTIL", "40", ',pod="a"') + line(
        "DCGM_FI_DEV_GPU_UTIL", "40", ',pod="b"'
    )
    assert read(text) == {FIRST: Gpu("dcgm", 0.4)}


def test_what_cannot_be_a_utilisation_is_none() -> None:
    for value in (
        *("NaN", "+Inf", "-1", "101.5", "9223372036854775792"),
        *("9223372036854775794", "2147483632"),
    ):
        assert one(line("DCGM_FI_DEV_GPU_UTIL", value)).utilization is None, value


def test_a_line_with_words_for_a_number_is_passed_over() -> None:
    for value in ("N/A", "ERROR - FAILED TO CONVERT TO STRING", ""):
        text = line("DCGM_FI_DEV_POWER_USAGE", "100.000000") + line("DCGM_FI_DEV_GPU_UTIL", value)
        assert one(text) == Gpu("dcgm", power=100.0), value


def test_what_cannot_be_a_power_is_none() -> None:
    for value in ("NaN", "-5.000000", "140737488355328.000000"):
        assert one(line("DCGM_FI_DEV_POWER_USAGE", value)).power is None, value


def test_a_ratio_that_rounding_brings_above_1_is_1() -> None:
    assert one(line("DCGM_FI_PROF_SM_ACTIVE", "1.000731")).sm_active == 1.0


def test_memory_has_no_total_while_a_part_of_it_is_missing() -> None:
    gpu = one(line("DCGM_FI_DEV_FB_USED", "100"))
    assert (gpu.memory_used, gpu.memory_total) == (100.0 * MIB, None)


def test_a_total_that_is_told_is_taken() -> None:
    text = line("DCGM_FI_DEV_FB_TOTAL", "49140") + line("DCGM_FI_DEV_FB_USED", "100")
    assert one(text).memory_total == 49140.0 * MIB


def test_the_old_namespace_is_read_as_well() -> None:
    text = f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",uuid="{FIRST}",device="nvidia0"}} 12\n'
    assert read(text) == {FIRST: Gpu("dcgm", 0.12)}


def test_a_line_about_no_gpu_is_passed_over() -> None:
    assert read('DCGM_FI_DEV_POWER_USAGE{cpu="0",Hostname="node"} 90.000000\n') == {}


def test_an_empty_answer_tells_nothing() -> None:
    assert read("") == {}


def test_what_is_no_metrics_text_is_an_error() -> None:
    with pytest.raises(ValueError):
        read("<html>bad gateway</html>")
