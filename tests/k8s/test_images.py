"""The container files in k8s/images: what they bring, whom they run as, and that nothing is amiss.

No image is built here, for want of a Docker engine: the files are read and linted. What a build
would install is worked out from the packages of this environment.
"""

import re
import tomllib
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from k8s.cluster import ROOT
from k8s.facts.images import images_of

FOLDER = ROOT / "k8s/images"
IMAGES = {image["metadata"]["name"]: image for image in images_of(FOLDER)}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FILES = sorted(FOLDER.glob("*.Dockerfile"))
HEAVY = {
    "keras",
    "nvidia-pytriton",
    "onnxruntime",
    "onnxruntime-gpu",
    "scikit-learn",
    "tensorflow",
    "tensorflow-cpu",
    "tf2onnx",
}


def image(name: str) -> dict[str, Any]:
    """An image, with what it takes over from that of ours which it is made of."""
    found = IMAGES[name]
    below = IMAGES.get(found["from"])
    if below is None:
        return found
    under = image(found["from"])
    inherited = {"extras": [*under["extras"], *found["extras"]], "env": under["env"] | found["env"]}
    return under | found | inherited


def closure(extras: list[str]) -> set[str]:
    """Every package that `pip install servegate[extras]` brings, as this environment has them."""
    names = PROJECT["dependencies"] + [
        one for extra in extras for one in PROJECT["optional-dependencies"][extra]
    ]
    found: set[tuple[str, str]] = set()
    todo = [Requirement(one) for one in names]
    while todo:
        one = todo.pop()
        name = canonicalize_name(one.name)
        for extra in ("", *one.extras):
            if (name, extra) in found:
                continue
            found.add((name, extra))
            todo += [
                each for each in map(Requirement, requires(name) or ()) if applies(each, extra)
            ]
    return {name for name, _ in found}


def applies(one: Requirement, extra: str) -> bool:
    return one.marker is None or one.marker.evaluate({**default_environment(), "extra": extra})


def copied(file: Path) -> list[str]:
    """What a container file takes from the folder that it is built in."""
    lines = re.findall(r"^COPY +(?!--from)(.+)$", file.read_text(), re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def let_in(file: Path) -> list[str]:
    lines = Path(f"{file}.dockerignore").read_text().splitlines()
    return [line[1:] for line in lines if line.startswith("!")]


@pytest.mark.parametrize("name", IMAGES)
def test_an_image_writes_into_one_folder_that_is_a_volume_and_stops_in_order(name: str) -> None:
    found = image(name)
    assert found["workdir"] == found["env"]["HOME"] == found["env"]["SERVEGATE_STATE"] == "/state"
    assert found["env"]["PYTHONDONTWRITEBYTECODE"] == "1"
    assert found["stopsignal"] == "SIGTERM"


def test_the_gateway_has_no_tensorflow_no_onnx_runtime_and_no_triton() -> None:
    brought = closure(image("servegate")["extras"])
    assert not brought & (HEAVY | {"locust", "gevent"})
    assert {"psycopg", "opentelemetry-sdk", "obstore", "uvloop"} <= brought


def test_the_load_generator_has_locust_and_the_converter_has_tensorflow() -> None:
    load = closure(image("servegate-load")["extras"])
    assert "locust" in load
    assert not load & HEAVY
    assert {"tensorflow-cpu", "tf2onnx", "onnxruntime"} <= closure(
        image("servegate-converter")["extras"]
    )


def test_every_package_of_every_image_has_its_version_in_the_constraints() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    known = {canonicalize_name(line.partition("==")[0]) for line in lines}
    for name in IMAGES:
        assert closure(image(name)["extras"]) <= known, name


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_install_is_held_to_the_constraints(file: Path) -> None:
    text = file.read_text().replace("\\\n", " ")
    installs = [part for part in re.split(r"&&|\n", text) if re.search(r"\bpip\b.* install ", part)]
    assert installs
    for one in installs:
        assert re.search(r"--constraint \S*constraints\.txt", one), one


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_is_copied_is_there_and_is_let_into_the_build(file: Path) -> None:
    assert copied(file)
    for source in copied(file):
        assert (ROOT / source).exists(), source
        assert source in let_in(file), source
    assert set(let_in(file)) == set(copied(file))


def test_what_the_build_of_the_wheel_reads_is_copied() -> None:
    wheel = set(copied(FOLDER / "servegate.Dockerfile"))
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert {PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"} <= wheel
    assert set(build["targets"]["wheel"]["packages"]) <= wheel
    assert str(Path(build["hooks"]["custom"]["path"]).parent) in wheel
