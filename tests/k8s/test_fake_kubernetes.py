"""The fake API server, driven by the real kubectl."""

import json
from typing import Any

import pytest
from fake_kubernetes.kinds import KINDS

from k8s.cluster import Cluster, named

Object = dict[str, Any]

CONFIG = named("v1", "ConfigMap", "colours", data={"sky": "blue"})


def deployment(*containers: Object, selector: str = "web", **more: Any) -> Object:
    labels = {"app": selector}
    template = {"metadata": {"labels": labels}, "spec": {"containers": list(containers), **more}}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    return named("apps/v1", "Deployment", "web", spec=spec)


def container(name: str, **more: Any) -> Object:
    return {"name": name, "image": f"{name}:1", **more}


def scaled(most: int) -> Object:
    spec = {"scaleTargetRef": {"name": "web"}, "maxReplicaCount": most, "triggers": []}
    return named("keda.sh/v1alpha1", "ScaledObject", "web", spec=spec)


# --- kubectl apply -----------------------------------------------------------------------------


def test_what_is_applied_is_there_and_applied_again_it_is_unchanged(cluster: Cluster) -> None:
    assert cluster.apply(CONFIG).well().lines == ["configmap/colours created"]
    version = cluster.api.version
    assert cluster.apply(CONFIG).well().lines == ["configmap/colours unchanged"]
    assert cluster.api.version == version
    kept = cluster.api.get("ConfigMap", "servegate", "colours")
    assert kept is not None and kept["data"] == {"sky": "blue"}


def test_kubectl_leaves_the_validation_of_fields_to_the_server(cluster: Cluster) -> None:
    cluster.apply(CONFIG).well()
    asked = next(each for each in cluster.api.requests if each.method == "POST")
    assert asked.query["fieldValidation"] == "Strict"
    assert "/openapi/v2" not in {each.path for each in cluster.api.requests}


def test_a_changed_workload_is_patched_item_by_item(cluster: Cluster) -> None:
    before = deployment(
        container("a", env=[{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]),
        container("b", ports=[{"containerPort": 80}]),
        volumes=[{"name": "state", "emptyDir": {}}],
    )
    after = deployment(
        container("c"),
        container("a", env=[{"name": "Y", "value": "3"}]),
        volumes=[{"name": "state", "configMap": {"name": "colours"}}],
    )
    cluster.apply(before).well()
    assert cluster.apply(after).well().lines == ["deployment.apps/web configured"]
    kept = cluster.api.get("Deployment", "servegate", "web")
    assert kept is not None and kept["spec"] == after["spec"]
    assert kept["metadata"]["generation"] == 2
    assert cluster.apply(after).well().lines == ["deployment.apps/web unchanged"]


def test_a_custom_object_is_patched_as_a_whole(cluster: Cluster) -> None:
    cluster.apply(scaled(3)).well()
    assert cluster.apply(scaled(5)).well().lines == ["scaledobject.keda.sh/web configured"]
    kept = cluster.api.get("ScaledObject", "servegate", "web")
    assert kept is not None and kept["spec"]["maxReplicaCount"] == 5


def test_nothing_can_be_applied_to_a_namespace_that_is_not_there(cluster: Cluster) -> None:
    said = cluster.apply(named("v1", "ConfigMap", "colours", namespace="elsewhere"))
    assert said.code == 1
    assert 'namespaces "elsewhere" not found' in said.err


def test_a_selector_can_not_be_changed(cluster: Cluster) -> None:
    cluster.apply(deployment(container("a"))).well()
    said = cluster.apply(deployment(container("a"), selector="other"))
    assert said.code == 1
    assert 'Deployment "web" is invalid: spec.selector' in said.err.replace(".apps", "")
    assert "field is immutable" in said.err


def test_diff_shows_what_apply_would_do_and_does_nothing(cluster: Cluster) -> None:
    cluster.apply(CONFIG).well()
    version = cluster.api.version
    assert cluster.kubectl("diff", "-f", "-", given=CONFIG).well().out == ""
    said = cluster.kubectl("diff", "-f", "-", given={**CONFIG, "data": {"sky": "grey"}})
    assert said.code == 1
    assert "-  sky: blue" in said.out and "+  sky: grey" in said.out
    assert cluster.api.version == version


def test_texts_of_a_secret_are_kept_encoded(cluster: Cluster) -> None:
    cluster.apply(named("v1", "Secret", "door", stringData={"key": "opens"})).well()
    kept = cluster.api.get("Secret", "servegate", "door")
    assert kept is not None and kept["data"] == {"key": "b3BlbnM="} and "stringData" not in kept


def test_server_side_apply_is_refused_and_does_nothing(cluster: Cluster) -> None:
    said = cluster.kubectl("apply", "--server-side", "-f", "-", given=CONFIG)
    assert said.code == 1
    assert "application/apply-patch+yaml" in said.err
    assert cluster.api.get("ConfigMap", "servegate", "colours") is None


# --- the rest of kubectl -----------------------------------------------------------------------


def test_what_is_deleted_is_gone_when_kubectl_returns(cluster: Cluster) -> None:
    cluster.apply(CONFIG).well()
    cluster.kubectl("delete", "configmap", "colours", "-n", "servegate").well()
    assert cluster.api.get("ConfigMap", "servegate", "colours") is None
    said = cluster.kubectl("delete", "configmap", "colours", "-n", "servegate")
    assert said.err.strip() == 'Error from server (NotFound): configmaps "colours" not found'


def test_with_a_namespace_goes_all_that_is_in_it(cluster: Cluster) -> None:
    cluster.apply(CONFIG, scaled(3)).well()
    cluster.kubectl("delete", "namespace", "servegate").well()
    assert cluster.api.objects("ConfigMap") == cluster.api.objects("ScaledObject") == []


def test_a_replacement_of_a_version_that_is_no_longer_the_newest_is_refused(
    cluster: Cluster,
) -> None:
    stale = cluster.api.put(CONFIG)
    cluster.api.put({**CONFIG, "data": {"sky": "grey"}})
    said = cluster.kubectl("replace", "-f", "-", given=stale)
    assert said.code == 1
    assert "Error from server (Conflict)" in said.err
    assert "the object has been modified" in said.err


def test_a_replacement_that_changes_nothing_makes_no_version(cluster: Cluster) -> None:
    newest = cluster.api.put(CONFIG)
    cluster.kubectl("replace", "-f", "-", given=newest).well()
    assert cluster.api.get("ConfigMap", "servegate", "colours") == newest
    assert str(cluster.api.version) == newest["metadata"]["resourceVersion"]


def test_what_is_there_can_not_be_created(cluster: Cluster) -> None:
    cluster.api.put(CONFIG)
    said = cluster.kubectl("create", "-f", "-", given=CONFIG)
    assert "Error from server (AlreadyExists)" in said.err
    assert 'configmaps "colours" already exists' in said.err


def test_a_long_list_is_read_page_by_page(cluster: Cluster) -> None:
    for number in range(5):
        cluster.api.put(named("v1", "ConfigMap", f"colours-{number}"))
    said = cluster.kubectl("get", "configmaps", "-A", "--chunk-size=2", "-o", "name").well()
    assert said.lines == [f"configmap/colours-{number}" for number in range(5)]
    pages = [each for each in cluster.api.requests if each.path == "/api/v1/configmaps"]
    assert [bool(each.query.get("continue")) for each in pages] == [False, True, True]


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("tier=web", ["a"]),
        ("tier!=web", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (web,data)", ["a", "b"]),
        ("tier notin (web,data),team", ["c"]),
    ],
)
def test_labels_select(cluster: Cluster, selector: str, found: list[str]) -> None:
    labels = {"a": {"tier": "web"}, "b": {"tier": "data"}, "c": {"team": "blue"}}
    for name, each in labels.items():
        given = named("v1", "Service", name)
        given["metadata"]["labels"] = each
        cluster.api.put(given)
    said = cluster.kubectl("get", "services", "-A", "-o", "name", "-l", selector).well()
    assert said.lines == [f"service/{name}" for name in found]


def test_kubectl_follows_changes_as_they_come(cluster: Cluster) -> None:
    async def follow() -> list[str]:
        process = await cluster.start("get", "cm", "-n", "servegate", "-o", "name", "-w")
        assert process.stdout is not None
        await cluster.api.watched()
        cluster.api.put(CONFIG)
        lines = [await process.stdout.readline()]
        cluster.api.put(named("v1", "ConfigMap", "hidden", namespace="default"))
        cluster.api.put(named("v1", "ConfigMap", "shapes"))
        lines.append(await process.stdout.readline())
        process.kill()
        await process.communicate()
        return [line.decode().strip() for line in lines]

    assert cluster.run(follow()) == ["configmap/colours", "configmap/shapes"]


def test_kubectl_knows_every_kind_by_its_names(cluster: Cluster) -> None:
    listed = cluster.kubectl("api-resources", "--no-headers").well().lines
    told = {(line.split()[0], line.split()[-1]) for line in listed}
    assert told == {(kind.plural, kind.name) for kind in KINDS}
    assert cluster.kubectl("get", "so,pdb,httproutes", "-n", "servegate").well().out == ""


CASES: dict[str, tuple[Object, Object]] = {
    "an item changes, one comes": (
        {"containers": [container("a"), container("b")]},
        {"containers": [{"name": "b", "image": "b:2"}, container("c")]},
    ),
    "an item goes": (
        {"containers": [container("a"), container("b")]},
        {"containers": [{"name": "a", "$patch": "delete"}]},
    ),
    "a list is replaced": (
        {"containers": [container("a"), container("b")]},
        {"containers": [{"$patch": "replace"}, container("c")]},
    ),
    "items are sorted": (
        {"containers": [container("a"), container("b")]},
        {
            "containers": [container("c")],
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}, {"name": "a"}],
        },
    ),
    "ports have numbers for keys": (
        {"containers": [container("a", ports=[{"containerPort": 1}, {"containerPort": 2}])]},
        {"containers": [{"name": "a", "ports": [{"containerPort": 2, "name": "two"}]}]},
    ),
    "a volume gets another source": (
        {"containers": [container("a")], "volumes": [{"name": "v", "emptyDir": {"medium": "x"}}]},
        {
            "volumes": [
                {"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}
            ]
        },
    ),
    "a plain list is replaced": (
        {"containers": [container("a", args=["x", "y"])]},
        {"containers": [{"name": "a", "args": ["z"]}]},
    ),
    "null takes a field away": (
        {"containers": [container("a", command=["x"])], "nodeSelector": {"gpu": "yes"}},
        {"nodeSelector": None, "containers": [{"name": "a", "command": None}]},
    ),
    "a map is replaced": (
        {"containers": [container("a")], "nodeSelector": {"gpu": "yes"}},
        {"nodeSelector": {"$patch": "replace", "zone": "a"}},
    ),
    "tolerations are one value": (
        {"containers": [container("a")], "tolerations": [{"key": "x", "operator": "Exists"}]},
        {"tolerations": [{"key": "y", "operator": "Exists"}]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_strategic_patch_does_what_kubernetes_own_code_does(case: str, cluster: Cluster) -> None:
    before, change = CASES[case]
    pod = named("v1", "Pod", "one", spec=before)
    words = ("patch", "--type=strategic", "-p", json.dumps({"spec": change}), "-o", "json")
    local = cluster.kubectl(*words, "--local", "-f", "-", given=pod).well()
    cluster.api.put(pod)
    cluster.kubectl(*words, "pod", "one", "-n", "servegate").well()
    kept = cluster.api.get("Pod", "servegate", "one")
    assert kept is not None
    assert kept["spec"] == json.loads(local.out)["spec"]
