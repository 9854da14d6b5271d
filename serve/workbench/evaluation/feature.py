"""Evaluations and their datasets as a feature of a control plane."""

import secrets
import time

from serve.admin.api.features import FeatureWeb
from serve.app.features import Feature, Plane
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluations import Evaluations


def build(plane: Plane) -> Feature:
    """The datasets, and the evaluations of models on them."""
    objects = plane.storage.objects
    datasets = Datasets(
        objects=objects, scratch=plane.settings.state_path / "datasets", wall=time.time
    )
    evaluations = Evaluations(
        objects=objects,
        datasets=datasets,
        gateway=plane.gateway,
        models=plane.models,
        wall=time.time,
        new_id=lambda: secrets.token_hex(6),
    )
    return Feature(
        services={Datasets: datasets, Evaluations: evaluations},
        web=lambda: web(datasets, evaluations),
        run=evaluations.run,
    )


def web(datasets: Datasets, evaluations: Evaluations) -> FeatureWeb:
    """The routers and pages."""
    from serve.workbench.evaluation.web.feature import feature_web

    return feature_web(datasets, evaluations)
