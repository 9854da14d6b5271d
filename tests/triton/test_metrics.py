"""What Triton tells of itself: its metrics, and what it has counted of a version."""

from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from serve.triton import model_counters
from serve.triton.metrics import GpuReading, ModelReading, read
from serve.triton.model_counters import Counters, Executed, total

# As tritonserver 2.51 writes them.
TEXT = Path(__file__).with_name("metrics_cpu.txt").read_text()
GPU = Path(__file__).with_name("metrics_gpu.txt").read_text()


def test_counters_and_durations_of_a_version_are_read() -> None:
    assert read(TEXT).models["digits", 1] == ModelReading(
        success=7,
        failure=3,
        inferences=70,
        executions=6,
        pending=3,
        queue_seconds=1.5,
        compute_seconds=2.5,
    )


def test_versions_are_kept_apart_and_what_waits_is_added_up() -> None:
    readings = read(TEXT)
    two = readings.models["digits", 2]
    assert (two.success, two.failure, two.pending) == (5, 0, 4)
    assert readings.pending == 7
    assert (readings.gpus, readings.cpu_utilization) == ({}, 0.25)


def test_each_gpu_has_the_readings_that_were_told_and_none_for_the_others() -> None:
    assert read(GPU).gpus == {
        "GPU-1": GpuReading(0.5, 1073741824.0, 85899345920.0, None),
        "GPU-2": GpuReading(None, None, 85899345920.0, None),
    }


def test_counters_per_model_and_gpu_belong_to_the_model() -> None:
    text = (
        "# TYPE nv_inference_request_success counter\n"
        'nv_inference_request_success{gpu_uuid="GPU-1",model="m",version="1"} 2\n'
        'nv_inference_request_success{gpu_uuid="GPU-2",model="m",version="1"} 3\n'
    )
    readings = read(text)
    assert (readings.models["m", 1].success, readings.gpus) == (5, {})


def test_an_empty_answer_tells_nothing_and_what_is_no_metrics_text_is_an_error() -> None:
    readings = read("")
    assert (readings.models, readings.gpus, readings.cpu_utilization) == ({}, {}, None)
    with pytest.raises(ValueError):
        read("<html>not found</html>")


def test_where_only_queues_are_asked_for_the_counters_are_passed_over() -> None:
    whole, queues = read(TEXT), read(TEXT, only_queues=True)
    assert queues.pending == whole.pending == 7
    assert (queues.gpus, queues.cpu_utilization) == (whole.gpus, whole.cpu_utilization)
    assert not any(one.success or one.queue_seconds for one in queues.models.values())


# --- counters -------------------------------------------------------------------------------------


def test_an_answer_is_read_by_name_and_version() -> None:
    answer = service_pb2.ModelStatisticsResponse()
    one = answer.model_stats.add(name="m", version="3", inference_count=12, execution_count=5)
    one.inference_stats.success.count, one.inference_stats.success.ns = 10, 1000
    one.inference_stats.fail.count = 2
    one.inference_stats.queue.ns = 300
    one.inference_stats.cache_hit.count, one.inference_stats.cache_miss.count = 1, 4
    for part, ns in (("compute_input", 10), ("compute_infer", 500), ("compute_output", 20)):
        getattr(one.inference_stats, part).ns = ns
    for size, count in ((4, 2), (1, 3)):
        row = one.batch_stats.add(batch_size=size)
        row.compute_infer.count, row.compute_infer.ns = count, 100 * count
        row.compute_input.count, row.compute_input.ns = count, 7
        row.compute_output.count, row.compute_output.ns = count, 3
    assert model_counters.read(answer) == {
        ("m", 3): Counters(
            calls=10,
            failures=2,
            rows=12,
            executions=5,
            whole=1000,
            queue=300,
            compute=530,
            hits=1,
            misses=4,
            sizes={1: Executed(3, 310), 4: Executed(2, 210)},
        )
    }


def test_a_rise_is_of_every_counter_and_of_the_sizes_that_were_executed() -> None:
    before = Counters(calls=5, rows=9, executions=3, sizes={1: Executed(2, 20), 7: Executed(1, 9)})
    now = Counters(
        calls=8,
        rows=15,
        executions=6,
        sizes={1: Executed(4, 50), 4: Executed(1, 30), 7: Executed(1, 9)},
    )
    assert now.since(before) == Counters(
        calls=3, rows=6, executions=3, sizes={1: Executed(2, 30), 4: Executed(1, 30)}
    )


def test_counters_that_fell_began_again_so_all_of_them_is_new() -> None:
    before = Counters(calls=5, rows=9, executions=3, sizes={1: Executed(2, 20)})
    more_but_another = Counters(calls=6, rows=12, executions=4, sizes={2: Executed(4, 50)})
    assert more_but_another.since(before) is more_but_another
    fewer = Counters(calls=1)
    assert fewer.since(before) is fewer


def test_sums_are_of_every_size() -> None:
    one = Counters(calls=1, queue=5, sizes={4: Executed(1, 10)})
    other = Counters(calls=2, queue=1, sizes={1: Executed(2, 3), 4: Executed(1, 20)})
    assert total([one, other]) == Counters(
        calls=3, queue=6, sizes={1: Executed(2, 3), 4: Executed(2, 30)}
    )
    assert list(total([one, other]).sizes) == [1, 4]
