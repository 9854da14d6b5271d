"""What evaluations add to the admin API and to the pages."""

import asyncio
from collections.abc import Mapping, Sequence

from serve.admin.api.features import FeatureWeb, MenuEntry, RecentActivity, ReusedInput
from serve.admin.web.page_templates import segment
from serve.control.tries.desk import Takes
from serve.control.tries.messages import archive
from serve.control.tries.requests import Offered
from serve.tensors.input_forms import RAW, GivenInput
from serve.workbench.evaluation.api import datasets as datasets_api
from serve.workbench.evaluation.api import evaluations as evaluations_api
from serve.workbench.evaluation.api.views import EvaluationLine, fields_of
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluations import Evaluations
from serve.workbench.evaluation.results import OutputKind
from serve.workbench.evaluation.sides import EvaluatedSide
from serve.workbench.evaluation.web import datasets as datasets_pages
from serve.workbench.evaluation.web import evaluations as evaluations_pages


def feature_web(datasets: Datasets, evaluations: Evaluations) -> FeatureWeb:
    """Of one control plane."""

    async def recent(model: str) -> Sequence[EvaluationLine]:
        lines = [EvaluationLine(**fields_of(one)) for one in await evaluations.all()]
        return [one for one in reversed(lines) if one.model == model]

    return FeatureWeb(
        name="evaluation",
        api=(datasets_api.router, evaluations_api.router),
        pages=(evaluations_pages.router, datasets_pages.router),
        templates="serve.workbench.evaluation.web",
        menu=(MenuEntry("/evaluations", "Evaluate", "/try", ("/datasets",)),),
        recent=(RecentActivity("evaluations_recent.html", recent),),
        rows=StoredRows(datasets),
    )


class StoredRows:
    """See `ReusableRows`."""

    def __init__(self, datasets: Datasets) -> None:
        self._datasets = datasets

    def __repr__(self) -> str:
        return f"<StoredRows of {self._datasets!r}>"

    async def names(self) -> Sequence[str]:
        """See `ReusableRows`."""
        return [each.name for each in await self._datasets.all()]

    async def add(
        self,
        dataset: str,
        given: Mapping[str, GivenInput] | bytes,
        filename: str,
        label: str,
        author: str,
    ) -> None:
        """See `ReusableRows`."""
        await self._datasets.add_row(dataset, given, filename, label, author)

    async def row(self, dataset: str, number: int, revision: int | None) -> ReusedInput:
        """See `ReusableRows`."""
        view = await self._datasets.view(dataset, revision)
        label = view.row(number).label
        asked = revision or ""
        path = f"/api/datasets/{segment(dataset)}/rows/{number}/image.png?revision={asked}"
        return ReusedInput(
            f"Row {number} of dataset {dataset}, label “{label}”.",
            f"/datasets/{segment(dataset)}?from={number}",
            "View the dataset",
            path if view.dataset.has_pictures else "",
            {"dataset": dataset, "row": str(number), "revision": str(asked)},
        )

    async def offered(
        self, dataset: str, number: int, revision: int | None, takes: Takes, model: str
    ) -> dict[str, Offered]:
        """See `ReusableRows`."""
        view = await self._datasets.view(dataset, revision)
        cells = await asyncio.to_thread(view.cells, number)
        called = f"row {number} of {dataset}"
        first = next(iter(cells.values()))
        if len(cells) == 1 and first.form in RAW:  # each side makes its own tensor of it
            return {"": Offered(first.form.value, first.data, called)}
        inputs = takes.metadata.inputs
        output = next(iter(takes.metadata.outputs.values()))
        side = EvaluatedSide(model, 0, inputs, output, OutputKind.CLASSES, takes.preprocessing, ())
        made = await asyncio.to_thread(side.tensors, cells, view.vector(number))
        return {"": Offered("npz", await asyncio.to_thread(archive, made.tensors), called)}
