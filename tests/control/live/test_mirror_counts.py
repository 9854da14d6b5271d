"""What came of mirrored calls, out of the real meters."""

from serve.control.live.mirror_counts import (
    MirrorCounts,
    OutputAgreementCounts,
    read_mirror_counts,
)
from serve.telemetry import Meters


def test_the_copies_of_one_candidate_are_counted_over_both_protocols() -> None:
    meters = Meters()
    for protocol, code, seconds in (("http", "200", 0.1), ("grpc", "OK", 0.2), ("grpc", "OK", 0.3)):
        meters.mirrored(("m", "2", protocol), code, seconds)
    meters.mirror_dropped(("m", "2"), "queue_full")
    meters.compared(("m", "2"), "compared")
    meters.compared(("m", "2"), "not_kept")
    meters.compared_rows(("m", "2", "y"), 3, 1)
    meters.compared_rows(("m", "2", "y"), 3, 0)
    for other in (("n", "2"), ("m", "3")):
        meters.mirrored((*other, "http"), "500", 9.0)
        meters.compared_rows((*other, "y"), 0, 5)
    found = read_mirror_counts(meters.text().decode(), "m", 2)
    assert found.seconds is not None and round(found.seconds, 6) == 0.2
    assert found.copies == {"200": 1, "OK": 2}
    assert found.dropped == {"queue_full": 1}
    assert found.comparisons == {"compared": 1, "not_kept": 1}
    assert found.outputs == {"y": OutputAgreementCounts(6, 1)}
    assert found.outputs["y"].differing == 1 / 7


def test_before_the_first_copy_there_is_nothing() -> None:
    assert read_mirror_counts(Meters().text().decode(), "m", 2) == MirrorCounts(2)
    assert OutputAgreementCounts(0, 0).differing is None
