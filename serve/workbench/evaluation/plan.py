"""Planning: an evaluation's request, held against the model, its versions and the dataset."""

import asyncio
from dataclasses import replace

from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.control.recorded import recorded_of
from serve.core.errors import Conflict, Invalid, NotFound, UnknownLabel, VersionNotReady
from serve.workbench.evaluation.dataset import DatasetRows
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluation import Evaluation, EvaluationRequest, spread
from serve.workbench.evaluation.run import RowPlan
from serve.workbench.evaluation.sides import EvaluatedSide, side_of


class Planner:
    """Looks up what an evaluation is about."""

    def __init__(self, datasets: Datasets, gateway: GatewayClient, models: Models) -> None:
        self._datasets = datasets
        self._gateway = gateway
        self._models = models

    def __repr__(self) -> str:
        return f"<Planner {self._datasets!r}>"

    async def begin(
        self, request: EvaluationRequest, identity: str, author: str, now: float
    ) -> Evaluation:
        """A new evaluation with the versions that labels name now; refuses what cannot be asked."""
        a = self._number(request.model, request.a)
        b = self._number(request.model, request.b) if request.b else None
        view = await self._datasets.view(request.dataset, request.revision or None)
        one = await self._side(request, a, view)
        other = one if b is None else await self._side(request, b, view)
        if (other.kind, other.output.name) != (one.kind, one.output.name):
            raise Invalid(
                f"versions {a} and {b} of model '{request.model}' cannot be compared",
                why=f"output '{one.output.name}' has {one.kind}, "
                f"but output '{other.output.name}' has {other.kind}",
            )
        if request.batch > 1 and not all(
            spec.has_batch for side in (one, other) for spec in (*side.inputs.values(), side.output)
        ):
            raise Invalid(
                f"model '{request.model}' accepts one row per call",
                why="an input or output has no batch dimension",
                try_this='"batch": 1',
            )
        for number in (a,) if b is None else (a, b):
            self._require_batch(request, number)
        await self._fits(view, (one, other))
        return Evaluation(
            id=identity,
            request=replace(request, revision=view.dataset.revision),
            author=author,
            version_a=a,
            version_b=b,
            output=one.output.name,
            kind=one.kind,
            digest=view.dataset.digest,
            total=len(spread(len(view), request.limit)),
            created=now,
        )

    async def view(self, evaluation: Evaluation) -> DatasetRows:
        """The rows that it is about; `Conflict` when they are not there any more."""
        request = evaluation.request
        try:
            view = await self._datasets.view(request.dataset, request.revision)
        except NotFound as error:
            raise Conflict(
                f"evaluation '{evaluation.id}' cannot continue",
                why=f"revision {request.revision} of dataset '{request.dataset}' was deleted",
            ) from error
        if view.dataset.digest != evaluation.digest:
            raise Conflict(
                f"evaluation '{evaluation.id}' cannot continue",
                why=f"dataset '{request.dataset}' was replaced",
            )
        return view

    async def plan(self, evaluation: Evaluation, view: DatasetRows) -> RowPlan:
        """How its rows are asked."""
        request = evaluation.request
        versions = [evaluation.version_a]
        if evaluation.version_b is not None:
            versions.append(evaluation.version_b)
        sides = [await self._side(request, version, view) for version in versions]
        return RowPlan(tuple(sides), request.via, request.concurrency, request.batch)

    async def _side(
        self, request: EvaluationRequest, version: int, view: DatasetRows
    ) -> EvaluatedSide:
        status = self._models.version(request.model, version)
        if status.state not in ("ready", "serving"):
            raise VersionNotReady(request.model, version, status.reason or status.state)
        metadata = await self._gateway.metadata(request.model, str(version))
        labels = await asyncio.to_thread(lambda: sorted(view.labels()))
        return side_of(
            request.model,
            version,
            metadata,
            recorded_of(self._models, request.model, version),
            output=request.output,
            labels=labels,
        )

    def _require_batch(self, request: EvaluationRequest, number: int) -> None:
        """`Invalid` when the version's configuration takes fewer rows in one call."""
        status = self._models.get(request.model).model
        holding = status.holding(number)
        known = holding.configuration if holding else None
        most = int(known.message.max_batch_size) if known else 0
        if 0 < most < request.batch:
            raise Invalid(
                f"version {number} of model '{request.model}' accepts at most {most} rows per call",
                why=f"its max_batch_size is {most}, but the evaluation uses {request.batch}",
                try_this=f'"batch": {most}',
            )

    async def _fits(self, view: DatasetRows, sides: tuple[EvaluatedSide, ...]) -> None:
        """The first row is made a tensor: what fits no row is told before anything is queued."""
        cells, vector = await asyncio.to_thread(view.cells, 0), view.vector(0)
        for side in sides:
            await asyncio.to_thread(side.tensors, cells, vector)

    def _number(self, model: str, selector: str) -> int:
        """The version that a number or a label means now; without either the one in charge."""
        status = self._models.get(model)
        if selector.isascii() and selector.isdigit():
            return int(selector)
        if selector:
            if selector not in status.labels:
                raise UnknownLabel(model, selector, status.labels)
            return status.labels[selector]
        number = self._models.main_version(model)
        if number is None:
            raise Invalid(f"no version of model '{model}' is served", try_this='"a": "1"')
        return number
