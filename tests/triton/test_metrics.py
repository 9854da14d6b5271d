"""Triton's metrics: numbers that are there, and None for those that are not."""

from pathlib import Path

import pytest

from serve.triton.metrics import GpuReading, ModelReading, read

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


def test_an_empty_answer_tells_nothing() -> None:
    readings = read("")
    assert (readings.models, readings.gpus, readings.cpu_utilization) == ({}, {}, None)


def test_what_is_no_metrics_text_is_an_error() -> None:
    with pytest.raises(ValueError):
        read("<html>not found</html>")


def test_where_only_queues_are_asked_for_the_counters_are_passed_over() -> None:
    whole, queues = read(TEXT), read(TEXT, only_queues=True)
    assert queues.pending == whole.pending == 7
    assert (queues.gpus, queues.cpu_utilization) == (whole.gpus, whole.cpu_utilization)
    assert not any(one.success or one.queue_seconds for one in queues.models.values())
