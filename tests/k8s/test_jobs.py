"""The Jobs in k8s/ are what a command prints, and run in the image that serves."""

import re
import shlex
from pathlib import Path
from typing import Any

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
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    command.make_context(command.name, words)  # the command line is a good one


def test_a_plan_is_built_in_the_image_that_serves() -> None:
    [images] = documents(COMPONENTS / "images/kustomization.yaml")
    tags = {one["name"]: one["newTag"] for one in images["images"]}
    name, _, tag = option(printed_by("conversion"), "--image").partition(":")
    assert tags[name] == tag
    for file in EXAMPLES:
        for container in containers(file):
            assert container["image"].split(":")[1] == tags[container["image"].split(":")[0]]
            assert f"--image={name}:{tag}" in container["args"] or "push" in container["args"]


def containers(file: Path) -> list[Any]:
    [job] = documents(file)
    pod = job["spec"]["template"]["spec"]
    return [*pod.get("initContainers", ()), *pod["containers"]]
