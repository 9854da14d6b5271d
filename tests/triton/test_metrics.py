"""Triton's metrics: numbers that are there, and None for those that are not."""

import pytest

from serve.triton.metrics import GpuReading, ModelReading, read

# As tritonserver 2.51 writes them.
TEXT = """\
# HELP nv_inference_request_success Number of successful inference requests, all batch sizes
# TYPE nv_inference_request_success counter
nv_inference_request_success{model="digits",version="1"} 7
nv_inference_request_success{model="digits",version="2"} 5
# HELP nv_inference_request_failure Number of failed inference requests, all batch sizes
# TYPE nv_inference_request_failure counter
nv_inference_request_failure{model="digits",reason="REJECTED",version="1"} 2
nv_inference_request_failure{model="digits",reason="OTHER",version="1"} 1
nv_inference_request_failure{model="digits",reason="BACKEND",version="2"} 0
# HELP nv_inference_count Number of inferences performed (does not include cached requests)
# TYPE nv_inference_count counter
nv_inference_count{model="digits",version="1"} 70
# HELP nv_inference_exec_count Number of model executions performed
# TYPE nv_inference_exec_count counter
nv_inference_exec_count{model="digits",version="1"} 6
# HELP nv_inference_queue_duration_us Cumulative inference queuing duration in microseconds
# TYPE nv_inference_queue_duration_us counter
nv_inference_queue_duration_us{model="digits",version="1"} 1500000
# HELP nv_inference_compute_input_duration_us Cumulative compute input duration in microseconds
# TYPE nv_inference_compute_input_duration_us counter
nv_inference_compute_input_duration_us{model="digits",version="1"} 250000
# HELP nv_inference_compute_infer_duration_us Cumulative compute inference duration
# TYPE nv_inference_compute_infer_duration_us counter
nv_inference_compute_infer_duration_us{model="digits",version="1"} 2000000
# HELP nv_inference_compute_output_duration_us Cumulative inference compute output duration
# TYPE nv_inference_compute_output_duration_us counter
nv_inference_compute_output_duration_us{model="digits",version="1"} 250000
# HELP nv_inference_pending_request_count Number of pending requests awaiting execution
# TYPE nv_inference_pending_request_count gauge
nv_inference_pending_request_count{model="digits",version="1"} 3
nv_inference_pending_request_count{model="digits",version="2"} 4
# HELP nv_cpu_utilization CPU utilization rate [0.0 - 1.0]
# TYPE nv_cpu_utilization gauge
nv_cpu_utilization 0.25
# HELP nv_pinned_memory_pool_total_bytes Pinned memory pool total memory size, in bytes
# TYPE nv_pinned_memory_pool_total_bytes gauge
nv_pinned_memory_pool_total_bytes 268435456
"""
GPU = """\
# HELP nv_gpu_utilization GPU utilization rate [0.0 - 1.0)
# TYPE nv_gpu_utilization gauge
nv_gpu_utilization{gpu_uuid="GPU-1"} 0.5
# HELP nv_gpu_memory_used_bytes GPU used memory, in bytes
# TYPE nv_gpu_memory_used_bytes gauge
nv_gpu_memory_used_bytes{gpu_uuid="GPU-1"} 1073741824
# HELP nv_gpu_memory_total_bytes GPU total memory, in bytes
# TYPE nv_gpu_memory_total_bytes gauge
nv_gpu_memory_total_bytes{gpu_uuid="GPU-1"} 85899345920
nv_gpu_memory_total_bytes{gpu_uuid="GPU-2"} 85899345920
"""


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


def test_versions_are_kept_apart() -> None:
    two = read(TEXT).models["digits", 2]
    assert (two.success, two.failure, two.pending) == (5, 0, 4)


def test_failures_add_up_over_their_reasons() -> None:
    assert read(TEXT).models["digits", 1].failure == 3


def test_what_waits_is_added_up_over_all_models() -> None:
    assert read(TEXT).pending == 7


def test_without_a_gpu_there_are_no_readings_of_one() -> None:
    readings = read(TEXT)
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
