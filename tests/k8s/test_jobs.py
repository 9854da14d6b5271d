"""The Jobs in k8s/: some are what a command prints, and what all of them are told to do exists."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from cli.commands import servegate

from k8s.cluster import ROOT
from serve.cli.main import app
from serve.workbench.conversion.plans.job import PlanPlace, manifest

COMPONENTS = ROOT / "k8s/components"
EXAMPLES = sorted((ROOT / "k8s/examples/conversion").glob("*.yaml"))


def documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def printed_by(component: str) -> list[str]:
    """The command in a component's comment, behind `servegate`."""
    text = (COMPONENTS / component / "kustomization.yaml").read_text()
    found = re.search(r"^#   (servegate (?:.*\\\n#     )*.*)$", text, re.MULTILINE)
    assert found
    _, *words = shlex.split(re.sub(r"\\\n# +", " ", found[1]))
    return words


def option(words: list[str], name: str) -> str:
    return words[words.index(name) + 1]


def test_the_load_test_is_what_its_command_prints() -> None:
    done = servegate(*printed_by("load-test"))
    assert done.returncode == 0, done.stderr
    assert documents(COMPONENTS / "load-test/job.yaml") == list(yaml.safe_load_all(done.stdout))


def test_the_building_of_a_plan_is_what_its_command_prints() -> None:
    words = printed_by("conversion")
    kit = option(words, "--kit")
    place = PlanPlace(option(words, "--image"), option(words, "--claim"), kit)
    expected = yaml.safe_load(manifest(kit.removesuffix("-kit"), place))
    assert documents(COMPONENTS / "conversion/job.yaml") == [expected]
    parse(words)


def test_a_plan_is_built_in_the_image_that_serves() -> None:
    [images] = documents(COMPONENTS / "images/kustomization.yaml")
    tags = {one["name"]: one["newTag"] for one in images["images"]}
    name, _, tag = option(printed_by("conversion"), "--image").partition(":")
    assert tags[name] == tag
    for file in EXAMPLES:
        for container in containers(file):
            assert container["image"].split(":")[1] == tags[container["image"].split(":")[0]]
            assert f"--image={name}:{tag}" in container["args"] or "push" in container["args"]


def test_the_claim_is_the_one_that_all_conversions_use() -> None:
    [claim] = documents(COMPONENTS / "conversion/persistentvolumeclaim.yaml")
    jobs = [COMPONENTS / "conversion/job.yaml", *EXAMPLES]
    for file in jobs:
        [job] = documents(file)
        claims = [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in job["spec"]["template"]["spec"]["volumes"]
            if "persistentVolumeClaim" in volume
        ]
        assert claims == [claim["metadata"]["name"]], file.name


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.name)
def test_what_a_conversion_is_told_exists(file: Path) -> None:
    for container in containers(file):
        parse(container["args"])


def containers(file: Path) -> list[Any]:
    [job] = documents(file)
    pod = job["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]


def parse(words: list[str]) -> None:
    """Read a command line as `servegate` does, without doing what it says."""
    command: Any = typer.main.get_command(app)
    rest = list(words)
    while hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(command.name, rest)
