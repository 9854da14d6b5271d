"""The fake API server, driven by the real kubectl."""

from typing import Any

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


# --- kubectl apply -----------------------------------------------------------------------------


def test_what_is_applied_is_there_and_applied_again_it_is_unchanged(cluster: Cluster) -> None:
    assert cluster.apply(CONFIG).well().lines == ["configmap/colours created"]
    version = cluster.api.version
    assert cluster.apply(CONFIG).well().lines == ["configmap/colours unchanged"]
    assert cluster.api.version == version
    kept = cluster.api.get("ConfigMap", "servegate", "colours")
    assert kept is not None and kept["data"] == {"sky": "blue"}


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


def test_a_selector_can_not_be_changed(cluster: Cluster) -> None:
    cluster.apply(deployment(container("a"))).well()
    said = cluster.apply(deployment(container("a"), selector="other"))
    assert said.code == 1
    assert 'Deployment "web" is invalid: spec.selector' in said.err.replace(".apps", "")
    assert "field is immutable" in said.err


# --- the rest of kubectl -----------------------------------------------------------------------


def test_a_replacement_of_a_version_that_is_no_longer_the_newest_is_refused(
    cluster: Cluster,
) -> None:
    stale = cluster.api.put(CONFIG)
    cluster.api.put({**CONFIG, "data": {"sky": "grey"}})
    said = cluster.kubectl("replace", "-f", "-", given=stale)
    assert said.code == 1
    assert "Error from server (Conflict)" in said.err
    assert "the object has been modified" in said.err


def test_a_long_list_is_read_page_by_page(cluster: Cluster) -> None:
    for number in range(5):
        cluster.api.put(named("v1", "ConfigMap", f"colours-{number}"))
    said = cluster.kubectl("get", "configmaps", "-A", "--chunk-size=2", "-o", "name").well()
    assert said.lines == [f"configmap/colours-{number}" for number in range(5)]
    pages = [each for each in cluster.api.requests if each.path == "/api/v1/configmaps"]
    assert [bool(each.query.get("continue")) for each in pages] == [False, True, True]


def test_labels_select(cluster: Cluster) -> None:
    labels = {"a": {"tier": "web"}, "b": {"tier": "data"}, "c": {"team": "blue"}}
    for name, each in labels.items():
        given = named("v1", "Service", name)
        given["metadata"]["labels"] = each
        cluster.api.put(given)
    selected = {
        "tier=web": "a",
        "tier!=web": "bc",
        "tier": "ab",
        "!tier": "c",
        "tier in (web,data)": "ab",
        "tier notin (web,data),team": "c",
    }
    for selector, found in selected.items():
        said = cluster.kubectl("get", "services", "-A", "-o", "name", "-l", selector).well()
        assert said.lines == [f"service/{name}" for name in found], selector


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
