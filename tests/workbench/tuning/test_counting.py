"""What Triton counts between two readings."""

from serve.capacity.service import ExecutionPoint
from serve.workbench.tuning.execution_counts import rises


def page(queue: tuple[int, int], **sizes: tuple[int, int]) -> dict[str, object]:
    """`model_stats`: by size, executions and nanoseconds of their compute_infer."""
    return {
        "inference_stats": {"queue": {"count": queue[0], "ns": queue[1]}},
        "batch_stats": [
            {
                "batch_size": int(name[1:]),
                "compute_input": {"count": count, "ns": 10 * count},
                "compute_infer": {"count": count, "ns": ns},
                "compute_output": {"count": count, "ns": 20 * count},
            }
            for name, (count, ns) in sizes.items()
        ],
    }


def test_executions_are_counted_by_size_with_all_that_they_take():
    before = page((5, 100), b1=(5, 5000))
    after = page((25, 2100), b1=(15, 15000), b4=(2, 4000))
    found = rises(before, after)
    assert found.points == (ExecutionPoint(1, 1030e-9, 10.0), ExecutionPoint(4, 2030e-9, 2.0))
    assert found.queue == 2000 / 20 / 1e9


def test_a_version_that_was_loaded_anew_counts_from_zero():
    found = rises(page((9, 900), b1=(9, 9000)), page((2, 50), b1=(2, 2000)))
    assert found.points == (ExecutionPoint(1, 1030e-9, 2.0),)
