"""What Triton has counted of a version, and what rose of it."""

from tritonclient.grpc import service_pb2

from serve.triton.model_counters import Counters, Executed, read, total


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
    assert read(answer) == {
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
