"""A server that is simulated: it answers what a search asks, with noise, and is not the model."""

import heapq
import math
from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from serve.capacity.batcher import Instances, simulate
from serve.capacity.measurements import Ask, Calibration, Measured, OpenLoopTrial, Pressure
from serve.capacity.prediction import predict
from serve.capacity.service import ExecutionPoint, ServiceTime
from serve.capacity.setup import BatchSetup
from serve.core.objectives import Objective

UNIT = 5.0  # seconds of a short measurement


@dataclass
class SimulatedServer:
    """`noise`: by what share the service time differs from measurement to measurement.

    `faults`: by what share the service time of a setup differs from the line for good; it is drawn
    per setup, and nothing that a calibration sees tells of it.
    """

    service: ServiceTime
    overhead: float
    objective: Objective
    noise: float = 0.02
    faults: float = 0.0
    seed: int = 0
    asked: list[Ask] = field(default_factory=list)

    def answer(self, ask: Ask) -> Measured:
        self.asked.append(ask)
        random = np.random.default_rng((self.seed, len(self.asked)))
        service = self.own(ask.setup).scaled(math.exp(random.normal(0, self.noise)))
        if isinstance(ask, Calibration):
            return self._closed(ask, service, random)
        return self._open(ask, service, int(random.integers(1 << 30)))

    def own(self, setup: BatchSetup) -> ServiceTime:
        """The service time under one setup."""
        key = abs(hash((setup.max_batch_size, setup.instances, setup.delay, setup.batches)))
        random = np.random.default_rng((self.seed, key % (1 << 32)))
        return self.service.scaled(math.exp(random.normal(0, self.faults)))

    def limit(self, setup: BatchSetup) -> float:
        """The true limit of a setup, in calls per second."""
        return predict(setup, self.own(setup), self.objective, overhead=self.overhead).rate

    def _open(self, ask: Pressure | OpenLoopTrial, service: ServiceTime, seed: int) -> Measured:
        seconds = UNIT * ask.weight
        calls = min(3000, max(50, int(seconds * ask.rate)))
        luck = np.random.default_rng(seed).poisson(calls) / calls
        rate = ask.rate * max(luck, 0.1)
        seen = simulate(ask.setup, service, rate, calls=calls, overhead=self.overhead, seed=seed)
        share = seconds * seen.rate / calls  # of the executions, which go on until all is answered
        points = [
            ExecutionPoint(rows, service.time(rows), count * share)
            for rows, count in seen.executions.items()
        ]
        latency = seen.quantile(self.objective.quantile)
        return Measured(seconds, seen.rate, latency, seen.p50, seen.p99, points=tuple(points))

    def _closed(
        self, ask: Calibration, service: ServiceTime, random: np.random.Generator
    ) -> Measured:
        setup, seconds = ask.setup, UNIT * ask.weight
        most = setup.max_batch_size if setup.batches else 1
        instances = Instances(setup.instances, service)
        coming = [(0.0, caller) for caller in range(ask.callers)]
        running: dict[int, list[float]] = {}
        sizes: Counter[int] = Counter()
        spent: dict[int, float] = {}
        latencies: list[float] = []
        number = 0
        while instances.now < seconds:
            start = max(coming[0][0], instances.now) if coming else math.inf
            if instances.is_free and start <= instances.next_end:
                instances.advance(start)
                batch: list[float] = []
                while coming and coming[0][0] <= start and len(batch) < most:
                    batch.append(heapq.heappop(coming)[0])
                alone = service.time(len(batch)) * random.lognormal(0, service.scatter or 1e-9)
                instances.start(alone, number, number + 1)
                running[number] = [start, *batch]
                number += 1
                continue
            ended, _ = instances.finish()
            begin, *batch = running.pop(ended)
            sizes[len(batch)] += 1
            spent[len(batch)] = spent.get(len(batch), 0.0) + instances.now - begin
            latencies += [instances.now - sent + self.overhead for sent in batch]
            for each in range(len(batch)):
                heapq.heappush(coming, (instances.now + self.overhead, number * most + each))
        points = [ExecutionPoint(rows, spent[rows] / count, count) for rows, count in sizes.items()]
        p50, p99 = np.quantile(latencies, (0.5, 0.99)).tolist()
        rate = len(latencies) / seconds
        return Measured(seconds, rate, p99, p50, p99, points=tuple(points))
