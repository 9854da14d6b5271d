"""The parts of a control plane that evaluate versions, put together."""

import secrets
import time

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.gateway import GatewayClient
from serve.control.models import Models
from serve.settings import Settings
from serve.workbench.evaluation.datasets import Datasets
from serve.workbench.evaluation.evaluations import Evaluations


def evaluating_of(
    settings: Settings, storage: ArtifactStorage, gateway: GatewayClient, models: Models
) -> tuple[Datasets, Evaluations]:
    """The datasets, and the evaluations of models on them."""
    scratch = settings.state_path / "datasets"
    datasets = Datasets(objects=storage.objects, scratch=scratch, wall=time.time)
    evaluations = Evaluations(
        objects=storage.objects,
        datasets=datasets,
        gateway=gateway,
        models=models,
        wall=time.time,
        new_id=lambda: secrets.token_hex(6),
    )
    return datasets, evaluations
