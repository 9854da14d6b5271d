"""What is known of a GPU when several tell it."""

import math
from pathlib import Path

from serve.triton.gpus.readings import Gpu, among, merged, of_triton
from serve.triton.metrics import GpuReading, read

# As tritonserver 2.51 writes them on a machine with two GPUs.
TRITON = Path(__file__).with_name("triton_two_gpus.txt").read_text()
TOTAL = 85520809984.0


def test_triton_tells_what_it_reads() -> None:
    first = of_triton(read(TRITON).gpus, ())["GPU-1"]
    assert first == Gpu("triton", 0.63, memory_used=22014853120.0, memory_total=TOTAL, power=312.5)


def test_a_0_of_triton_may_be_a_gpu_that_it_could_not_read() -> None:
    second = of_triton(read(TRITON).gpus, ())["GPU-2"]
    assert (second.utilization, second.memory_used) == (None, 0.0)


def test_a_0_of_triton_is_believed_of_a_gpu_that_was_busy_before() -> None:
    assert of_triton(read(TRITON).gpus, {"GPU-2"})["GPU-2"].utilization == 0.0


def test_no_gpu_has_no_memory_and_draws_no_power() -> None:
    told = {"GPU-1": GpuReading(0.5, 0.0, 0.0, 0.0)}
    assert of_triton(told, ()) == {"GPU-1": Gpu("triton", 0.5)}


def test_what_cannot_be_a_share_is_none() -> None:
    for value in (math.nan, -0.5, 1.5, math.inf):
        told = {"GPU-1": GpuReading(value, None, None, value if value != 1.5 else None)}
        assert of_triton(told, {"GPU-1"}) == {"GPU-1": Gpu("triton")}, value


def test_of_each_number_the_first_that_knows_it_is_believed() -> None:
    triton = {"GPU-1": Gpu("triton", 0.6, memory_used=1.0)}
    dcgm = {"GPU-1": Gpu("dcgm", 0.7, sm_active=0.2, memory_used=2.0)}
    expected = Gpu("triton+dcgm", 0.6, sm_active=0.2, memory_used=1.0)
    assert merged((triton, dcgm)) == {"GPU-1": expected}


def test_a_source_that_adds_nothing_is_not_named() -> None:
    triton = {"GPU-1": Gpu("triton", 0.6)}
    assert merged((triton, {"GPU-1": Gpu("nvml", 0.7)})) == triton


def test_a_gpu_that_only_one_tells_of_is_kept() -> None:
    found = merged(({"GPU-1": Gpu("triton", 0.6)}, {"GPU-2": Gpu("dcgm", 0.1)}))
    assert list(found) == ["GPU-1", "GPU-2"]


def test_the_utilisation_of_a_gpu_that_is_cut_means_nothing() -> None:
    found = merged(
        (
            {"GPU-1": Gpu("triton", 0.4, power=90.0)},
            {"GPU-1/5": Gpu("dcgm", tensor_active=0.1, mig="2g.10gb")},
        )
    )
    assert found["GPU-1"] == Gpu("triton", power=90.0, mig="enabled")


def test_the_utilisation_that_another_tells_of_a_gpu_in_mig_mode_means_nothing() -> None:
    found = merged(({"GPU-1": Gpu("triton", 0.4)}, {"GPU-1": Gpu("nvml", mig="enabled")}))
    assert found["GPU-1"].utilization is None


def test_a_gpu_whose_name_begins_like_another_s_is_not_its_slice() -> None:
    found = merged(({"GPU-1": Gpu("dcgm", 0.4)}, {"GPU-12": Gpu("dcgm", 0.5)}))
    assert found["GPU-1"].utilization == 0.4


def test_others_gpus_are_left_out_where_triton_says_which_are_its_own() -> None:
    gpus = {"GPU-1": Gpu("dcgm"), "GPU-1/5": Gpu("dcgm"), "GPU-2": Gpu("dcgm")}
    assert list(among(gpus, {"GPU-1"})) == ["GPU-1", "GPU-1/5"]
    assert among(gpus, ()) == gpus
