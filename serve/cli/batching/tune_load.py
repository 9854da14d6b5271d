"""The load of a tuning: what calls bring, from the options to lanes with every body in them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from serve.cli.asked import ModelReference
from serve.cli.callers import HttpCaller
from serve.cli.load.check import check_lanes
from serve.cli.load.inputs import InputRequest, read_requests
from serve.core.errors import Invalid
from serve.load import encoded_bodies
from serve.load.encoded_bodies import CallWay
from serve.load.plan import Lane, LaneProtocol
from serve.load.traces import read_trace
from serve.load.tuner.bench import LoadBench
from serve.load.tuner.measurements import MeasuredWorkload, mean_rows, parse_rows
from serve.tensors.metadata import Metadata

_TIMEOUT = 30.0  # seconds for the first calls


@dataclass(frozen=True, slots=True)
class TuningLoad:
    """`rows` of calls as `1:80,8:20`, `inputs` as `servegate infer` takes them, and a trace."""

    rows: str
    inputs: tuple[str, ...]
    trace: Path | None

    def workload(
        self, bench: LoadBench, preprocessing: Callable[[], Mapping[str, Any]]
    ) -> tuple[MeasuredWorkload, tuple[str, ...]]:
        """The calls, and notes for people. Each kind was made once, so what is wrong is told."""
        with HttpCaller(bench.http, timeout=_TIMEOUT) as caller:
            metadata = caller.metadata(ModelReference(bench.name, str(bench.version)))
        sizes = parse_rows(self.rows)
        if not all(one.has_batch for one in metadata.inputs.values()) and sizes != ((1, 1.0),):
            raise Invalid(
                f"--rows {self.rows} does not fit model '{bench.name}'",
                why="not every input has a batch dimension",
                try_this="leave --rows out",
            )
        made = [self._lane(bench, metadata, preprocessing, *one) for one in sizes]
        lanes = tuple(lane for lane, _ in made)
        notes = (note for _, some in made for note in some)
        told = (*notes, *check_lanes(lanes, timeout=_TIMEOUT))
        trace = read_trace(self.trace) if self.trace else ()
        return MeasuredWorkload(lanes, mean_rows(sizes), trace), tuple(dict.fromkeys(told))

    def _lane(
        self,
        bench: LoadBench,
        metadata: Metadata,
        preprocessing: Callable[[], Mapping[str, Any]],
        rows: int,
        share: float,
    ) -> tuple[Lane, tuple[str, ...]]:
        wish = InputRequest(self.inputs, batch=rows if rows > 1 else 0)
        ready = read_requests(bench.name, metadata, wish, preprocessing)
        asked = encoded_bodies.RequestedVersion(bench.name, str(bench.version), ready.datatypes)
        way = CallWay(LaneProtocol.GRPC, bench.address, share)
        (lane,) = encoded_bodies.lanes((way,), ready.requests, asked)
        return replace(lane, name=f"grpc, {rows} rows"), ready.notes
