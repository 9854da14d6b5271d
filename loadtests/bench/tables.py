"""Results as text, for the terminal."""

from loadtests.bench.footprint import Footprint
from loadtests.bench.measuring import Measured
from loadtests.bench.rounds import Ratio
from loadtests.bench.streaming import Streamed

_HEAD = (
    f"{'':12}{'calls/s':>9}{'×':>6}{'p50 µs':>9}{'p99 µs':>9}{'added p50':>11}{'×':>7}"
    f"{'CPU µs':>10}{'×':>7}  {'(min–max)':<13}{'above':>7}{'failed':>8}"
)


def text(one: Measured) -> str:
    """A heading, and one line per target. `above`: CPU time of supervisors per call."""
    row = one.row
    heading = f"{row.title}   [{row.name}, {row.concurrency} concurrent]"
    if one.others is not None:
        heading += f"   other processes used {one.others:.0%} of the proxy's core"
    said = [heading, _HEAD]
    said += [
        f"{line.target:12}{line.rate:9.0f}{_ratio(line.rate_ratio):>6}{line.p50:9.0f}{line.p99:9.0f}"
        f"{number(line.added_p50):>11}{number(line.added_p50_ratio, 2):>7}"
        f"{number(line.cpu, 1):>10}{_ratio(line.cpu_ratio):>7}  {spread(line.cpu_ratio):<13}"
        f"{number(line.supervision, 1):>7}{line.failed:8}"
        for line in one.lines
    ]
    return "\n".join(said)


def streamed(one: Streamed) -> str:
    """One body of a gibibyte, in a line."""
    return (
        f"1 GiB {one.direction:8}{one.target:12}{one.seconds:6.2f} s"
        f"   CPU {number(one.cpu, 2):>5} s   memory + {number(one.growth, 1):>7} MiB"
    )


def footprint(one: Footprint) -> str:
    """The memory of one proxy, in a line."""
    return (
        f"memory  {one.target:12}worker {one.worker:6.1f} MiB   above {one.above:6.1f} MiB"
        f"   each further worker {number(one.further, 1):>5} MiB"
    )


def number(value: float | None, digits: int = 0) -> str:
    """A dash where there is none."""
    return "–" if value is None else f"{value:.{digits}f}"


def spread(ratio: Ratio | None) -> str:
    """The least and the most of the rounds."""
    return "" if ratio is None else f"({ratio.low:.2f}–{ratio.high:.2f})"


def _ratio(ratio: Ratio | None) -> str:
    return number(None if ratio is None else ratio.median, 2)
