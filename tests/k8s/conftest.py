"""What the tests of the manifests share: a home for kubectl, and what the kustomizations make."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k8s.cluster import Cluster
from k8s.facts.combinations import all_manifests
from k8s.facts.manifests import Manifests
from k8s.facts.program import Program, read_program
from k8s.rendering import Rendering, render_all


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """kubectl's home: nothing of the user's, and one cache for all."""
    try:
        subprocess.run(["kubectl", "version", "--client"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.exit(f"kubectl does not run: {error}; `make test-k8s` says what is missing", 2)
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def cluster(home: Path) -> Iterator[Cluster]:
    """A cluster with the namespace servegate, in which nothing is."""
    with Cluster(home) as running:
        yield running


@pytest.fixture
def bare(home: Path) -> Iterator[Cluster]:
    """A cluster in which not even our namespace is."""
    with Cluster(home, is_bare=True) as running:
        yield running


@pytest.fixture(scope="session")
def rendered(home: Path) -> dict[str, Rendering]:
    """What each kustomization makes, by its folder: `overlays/eks`."""
    return render_all(home)


@pytest.fixture(scope="session")
def manifests(
    home: Path, rendered: dict[str, Rendering], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Manifests]:
    """Every combination that rules are about, by its name: `base + keda`, `overlays/eks`."""
    return all_manifests(home, tmp_path_factory.mktemp("combinations"), rendered)


@pytest.fixture(scope="session")
def program(manifests: dict[str, Manifests], tmp_path_factory: pytest.TempPathFactory) -> Program:
    return read_program(tmp_path_factory.mktemp("program"), tuple(manifests.values()))
