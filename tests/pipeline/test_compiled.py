"""The pipelines as YAML for a cluster: what is committed is what the code says, and asks for GPUs
only where something computes on one."""

import subprocess

import compiled_pipelines as compiled
import harness
import pytest
import yaml

PYTHON = harness.ROOT / ".venv-pipeline" / "bin" / "python"
FOLDER = harness.ROOT / "examples" / "kubeflow"
NAMES = ("digits", "cifar10")
ASKING = {"gate", "push", "verify", "promote", "link"}
COMPUTING = {"digits": set(), "cifar10": {"fit", "build-plan"}}


@pytest.fixture(scope="module")
def tasks():
    """The tasks of each committed pipeline."""
    return {name: compiled.read(FOLDER / f"{name}.yaml") for name in NAMES}


@pytest.fixture(scope="module")
def tags():
    """The tag of each image of the manifests."""
    page = (harness.ROOT / "k8s/components/images/kustomization.yaml").read_text()
    return {image["name"]: str(image["newTag"]) for image in yaml.safe_load(page)["images"]}


def test_compiling_again_gives_the_committed_files(tmp_path):
    words = [str(PYTHON), str(FOLDER / "compile.py"), "--out", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for name in NAMES:
        committed = (FOLDER / f"{name}.yaml").read_text()
        assert (tmp_path / f"{name}.yaml").read_text() == committed, f"{name}: run compile.py"


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_computes_on_a_gpu_asks_for_exactly_one_and_all_others_for_none(tasks, name):
    asked = {task.name: task.gpus for task in tasks[name].values() if task.gpus}
    assert asked == dict.fromkeys(COMPUTING[name], 1)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_with_a_gpu_bears_its_taint_and_all_others_keep_away(tasks, name):
    for task in tasks[name].values():
        tolerated = [one["key"] for one in task.platform.get("tolerations", ())]
        affinity = task.platform.get("nodeAffinity", [])
        if task.gpus:
            assert tolerated == [compiled.GPU] and not affinity, task
            assert task.platform["nodeSelector"]["nodeSelectorJson"], task
            continue
        assert not tolerated and "nodeSelector" not in task.platform, task
        (rule,) = (each for one in affinity for each in one["matchExpressions"])
        assert (rule["key"], rule["operator"]) == (f"{compiled.GPU}.present", "DoesNotExist")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_that_asks_the_gateway_has_the_key_and_is_never_taken_from_a_cache(tasks, name):
    keyed = {task.name for task in tasks[name].values() if "secretAsEnv" in task.platform}
    cached = {task.name for task in tasks[name].values() if task.is_cached}
    assert keyed == ASKING and not cached & ASKING
    for task in (tasks[name][each] for each in ASKING):
        (secret,) = task.platform["secretAsEnv"]
        assert secret["keyToEnv"] == [{"secretKey": "key", "envVar": "SERVEGATE_KEY"}]
        assert secret["optional"] is True


def test_each_step_runs_in_the_image_that_has_what_it_calls(tasks, tags):
    own = tags["servegate-converter"]
    images = {task.name: task.image for task in tasks["cifar10"].values()}
    assert images.pop("fit") == f"servegate-training:{own}"
    assert images.pop("build-plan").startswith("nvcr.io/nvidia/tritonserver:")
    assert set(images.values()) == {f"servegate-pipeline:{own}"}
    assert f"servegate-converter:{own}\n" in (FOLDER / "Containerfile").read_text()


def test_the_plan_is_built_in_the_image_of_the_pool(tasks, tags):
    name, _, tag = tasks["cifar10"]["build-plan"].image.rpartition(":")
    assert tags[name] == tag
