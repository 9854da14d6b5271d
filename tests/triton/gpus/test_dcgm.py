"""dcgm-exporter's text, as its templates write it: with and without MIG, with what is missing.

The form of the lines is that of `internal/pkg/rendermetrics/render_metrics.go`; fields and units
are those of `etc/dcp-metrics-included.csv`, with the lines in it that are switched off by default.
"""

from pathlib import Path

import pytest

from serve.triton.gpus.dcgm import read
from serve.triton.gpus.readings import Gpu

MIB = 1 << 20
FIRST = "GPU-0a5f2b9e-7d32-4c7a-9c59-8b1a3e0f6d11"
SECOND = "GPU-51c7e0d4-1b8f-4f6e-a7d0-2f9b6c3e8a22"
HERE = Path(__file__).parent
WHOLE = (HERE / "dcgm_whole.txt").read_text()
MIG = (HERE / "dcgm_mig.txt").read_text()


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
