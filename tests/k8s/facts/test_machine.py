"""The machine that compares facts, on small samples: what it reads, changes and notices."""

from pathlib import Path
from typing import Any

import pytest
from k8s.facts.claims import EXACT, KEY, Claim, claim_of
from k8s.facts.images import images_of
from k8s.facts.manifests import GONE, Leaf, Manifests, pattern
from k8s.facts.mutations import of_manifests, of_program
from k8s.facts.program import Program
from k8s.facts.rules import seen, walls, words
from k8s.facts.workloads import pods_of
from k8s.facts.world import World

NOTHING = Program({"command": {"proxy": frozenset()}, "flag": {}, "variable": {}, "word": {}})
POD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: one, namespace: ours}
spec:
  template:
    metadata: {labels: {app: one}}
    spec:
      containers:
        - name: gateway
          image: registry.example.com/servegate:0.1.0
          args: [proxy, --workers=2, --control, $(WHERE)]
          env:
            - {name: WHERE, value: "http://control:8080"}
          envFrom:
            - configMapRef: {name: settings}
          ports:
            - {name: http, containerPort: 8000}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {SERVEGATE_LOG_FORMAT: json}
"""
DOCKERFILE = """# docker build -f k8s/images/one.Dockerfile -t one .
# docker build -f k8s/images/one.Dockerfile -t other --build-arg EXTRAS=load .
ARG BASE=python:3.12
FROM ${BASE} AS build
ARG EXTRAS=postgres,otel
RUN pip install \\
      "servegate[${EXTRAS}]"
FROM ${BASE}
ENV SERVEGATE_STATE=/state HOME=/state
USER 1000:1000
EXPOSE 8000 8080
ENTRYPOINT ["servegate"]
"""
POLICY = """
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: one}
spec:
  podSelector: {matchLabels: {app: one}}
  policyTypes: [Ingress]
  ingress:
    - from: [{podSelector: {matchLabels: {app: two}}}]
      ports: [{port: http}]
"""


def leaf(text: str, path: str) -> Leaf:
    return next(one for one in Manifests.read("sample", text).leaves() if one.path == path)


def world(text: str, program: Program = NOTHING) -> World:
    return World(Manifests.read("sample", text), program)


def test_a_value_is_found_by_the_names_of_what_holds_it() -> None:
    paths = {one.path: one.value for one in Manifests.read("sample", POD).leaves()}
    where = "spec.template.spec.containers[gateway]"
    assert paths[f"{where}.ports[http].containerPort"] == 8000
    assert paths[f"{where}.env[WHERE].value"] == "http://control:8080"
    assert paths[f"{where}.args[1]"] == "--workers=2"


def test_a_value_is_changed_in_a_copy() -> None:
    before = Manifests.read("sample", POD)
    found = leaf(POD, "spec.template.spec.containers[gateway].ports[http].containerPort")
    after = before.with_value(found.number, found.steps, 8001)
    assert [one.value for one in after.leaves() if one.path == found.path] == [8001]
    assert [one.value for one in before.leaves() if one.path == found.path] == [8000]
    gone = before.with_value(found.number, found.steps, GONE)
    assert not [one for one in gone.leaves() if one.path == found.path]


def test_a_key_is_changed_in_its_place() -> None:
    found = leaf(POD, "data.SERVEGATE_LOG_FORMAT")
    after = Manifests.read("sample", POD).with_key(found.number, found.steps, "OTHER")
    assert [one.value for one in after.leaves() if one.path == "data.OTHER"] == ["json"]


@pytest.mark.parametrize(
    ("text", "where", "fits"),
    [
        ("* spec.replicas", "Deployment/one spec.replicas", True),
        ("Service/* spec.ports[*].port", "Service/one spec.ports[http].port", True),
        ("Service/* spec.port", "Service/one spec.ports[http].port", False),
        ("A/* x|B/* y", "B/one y", True),
        ("A/* x", "A/one x y", False),
    ],
)
def test_a_star_is_anything_but_a_space(text: str, where: str, fits: bool) -> None:
    assert (pattern(text).fullmatch(where) is not None) is fits


def test_a_container_is_read_as_it_will_run() -> None:
    container = pods_of(Manifests.read("sample", POD))[0].containers[0]
    assert (container.image, container.words[0]) == ("servegate", "proxy")
    assert dict(container.flags) == {"--workers": "2", "--control": "$(WHERE)"}
    assert container.expanded("$(WHERE)/x") == "http://control:8080/x"
    assert container.variables["SERVEGATE_LOG_FORMAT"].value == "json"


def test_a_config_map_that_is_not_there_is_told() -> None:
    without = POD.replace("name: settings}\ndata", "name: others}\ndata")
    assert any("ConfigMap/settings" in one for one in words.variables_are_read(world(without)))


def test_what_a_container_file_makes_is_read(tmp_path: Path) -> None:
    (tmp_path / "one.Dockerfile").write_text(DOCKERFILE)
    one, other = images_of(tmp_path)
    assert one["metadata"]["name"], other["metadata"]["name"] == ("one", "other")
    assert (one["extras"], other["extras"]) == (["postgres", "otel"], ["load"])
    assert one["env"] == {"SERVEGATE_STATE": "/state", "HOME": "/state"}
    assert (one["user"], one["expose"], one["entrypoint"]) == (
        "1000:1000",
        [8000, 8080],
        ["servegate"],
    )


def test_every_word_of_a_text_is_made_wrong() -> None:
    found = leaf(POD, "spec.template.spec.containers[gateway].env[WHERE].value")
    told = [one.what for one in of_manifests(world(POD), found, Claim(EXACT, ""))]
    assert [one.partition(" is ")[2] for one in told] == [
        "gone",
        "'htqp://control:8080'",
        "'http://conqrol:8080'",
        "'http://control:8081'",
        "'http://control:8079'",
    ]


def test_of_a_free_value_only_the_key_is_made_wrong() -> None:
    found = leaf(POD, "data.SERVEGATE_LOG_FORMAT")
    mutants = list(of_manifests(world(POD), found, Claim(KEY, "")))
    assert len(mutants) == 3
    assert all("is called" in one.what for one in mutants)


def test_a_fact_of_the_program_is_taken_away_and_changed() -> None:
    program = Program({"port": {"proxy": 8000}})
    told = [
        one.make().program.facts["port"] for one in of_program(world(POD, program), "port", "proxy")
    ]
    assert told == [{}, {"proxy": 8001}]


def test_who_asks_for_a_fact_is_remembered() -> None:
    program = Program({"flag": {"proxy --workers": "a value"}})
    assert program.find("flag", "proxy --workers") == "a value"
    assert program.find("flag", "proxy --none") is None
    assert program.used == {("flag", "proxy --workers")}


def test_a_policy_lets_in_those_whom_it_names_on_that_port() -> None:
    manifests = Manifests.read("sample", POD + "---" + POLICY)
    one = pods_of(manifests)[0]
    policies = list(manifests.of("NetworkPolicy"))
    others: list[tuple[dict[str, str], int, bool]] = [
        ({"app": "two"}, 8000, True),
        ({"app": "two"}, 8001, False),
        ({"app": "three"}, 8000, False),
    ]
    for labels, port, allowed in others:
        other = type(one)("Pod/x", "Pod", "ours", labels, {})
        assert walls._may(policies, "Ingress", other, one, port) is allowed
        assert walls._may(policies, "Egress", other, one, port) is True


def test_a_pod_that_no_policy_is_about_lets_everybody_in() -> None:
    one = pods_of(Manifests.read("sample", POD))[0]
    assert walls._may([], "Ingress", one, one, 1)


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("rate(servegate_x_total[5m]) > 3", ["servegate_q_total"]),
        ('nv_y{model="a"}', ["nv_q", "moqel"]),
        ("sum by (pool) (nv_y)", ["poql", "nv_q"]),
        ("a:servegate_x:rate5m > 1", ["q:servegate_x", "a:servqgate_x", "a:servegate_q"]),
        ("of {{ $labels.model }}", ["$labels.moqel"]),
    ],
)
def test_names_in_expressions_are_made_wrong(text: str, wrong: list[str]) -> None:
    from k8s.facts.mutations import _texts

    made = list(seen.names_in(text, _texts))
    for part in wrong:
        assert any(part in one for one in made), (part, made)
    assert text not in made


def test_a_value_without_a_claim_has_none() -> None:
    assert claim_of(Leaf("Unheard/of", "spec.it", 1, 0, ("spec", "it"))) is None


def test_a_command_that_is_not_there_is_told() -> None:
    wrong: Any = list(words.commands_exist(world(POD.replace("args: [proxy", "args: [proxies"))))
    assert wrong == [
        "Deployment/one container gateway runs 'proxies --workers=2 --control $(WHERE)', "
        "and there is no such command"
    ]
