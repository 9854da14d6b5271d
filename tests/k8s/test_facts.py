"""What manifests and program share is the same on both sides, in every rendering that there is.

The facts of both sides are extracted: manifests as kubectl renders them, the program as it runs.
`facts/` has the rules.
"""

import pytest

from k8s.facts.manifests import GONE, Manifests
from k8s.facts.program import Program
from k8s.facts.rules import problems
from k8s.facts.world import World


def test_every_rendering_agrees_with_the_program(
    manifests: dict[str, Manifests], program: Program
) -> None:
    found = {
        f"{name}: {sentence}"
        for name, one in manifests.items()
        for sentence in problems(World(one, program))
    }
    assert not found, "\n".join(sorted(found))


POD = "spec.template.spec"
GATEWAY, CONTROL, TRITON = (
    f"Deployment/{name} {POD}.containers[{container}]"
    for name, container in (
        ("servegate-gateway", "gateway"),
        ("servegate-control", "control"),
        ("triton-default", "triton"),
    )
)
SYNC = f"Deployment/triton-default {POD}.initContainers[sync]"
WRONG = {
    "base + keda + tls + keda-tls": (
        ("ConfigMap/servegate data.SERVEGATE_CONTROL", "http://servegate-control:8080"),
        ("ConfigMap/servegate data.SERVEGATE_CONTROL", "https://servegate-controls:8080"),
        ("ConfigMap/servegate data.SERVEGATE_ADMIN_URL", "https://servegate-control:8081"),
        ("ConfigMap/servegate data.SERVEGATE_DISCOVER", "kubernetes=elsewhere"),
        ("ConfigMap/servegate data.SERVEGATE_HOST", "127.0.0.1"),
        ("ConfigMap/servegate data.SERVEGATE_KEDA_PORT", "9091"),
        ("ConfigMap/servegate data.SERVEGATE_TLS_KEY", GONE),
        ("ConfigMap/servegate data.SERVEGATE_TLS_CERT", "/tls/other.crt"),
        ("ConfigMap/servegate metadata.name", "settings"),
        (f"{GATEWAY}.args[0]", "prxy"),
        (f"{SYNC}.args[2]", "--folders=/models"),
        (f"{SYNC}.args[2]", "--folder=/other"),
        (f"{TRITON}.args[2]", "--model-control-mode=poll"),
        (f"{TRITON}.args[6]", "--http-port=8003"),
        (f"{TRITON}.volumeMounts[models].mountPath", "/other"),
        (f"{GATEWAY}.ports[metrics].containerPort", 8003),
        (f"{GATEWAY}.livenessProbe.httpGet.path", "/alive"),
        (f"{GATEWAY}.readinessProbe.httpGet.port", "http"),
        (f"{CONTROL}.startupProbe.httpGet.scheme", "HTTP"),
        (f"{CONTROL}.securityContext.readOnlyRootFilesystem", False),
        (f"Deployment/servegate-control {POD}.securityContext.runAsUser", 1001),
        (f"Deployment/servegate-gateway {POD}.volumes[tls].secret.secretName", "other"),
        ("Service/servegate spec.ports[http].port", 8008),
        ("Service/servegate spec.ports[http].appProtocol", "http"),
        ("Service/servegate-control spec.selector.app.kubernetes.io/component", "gateway"),
        ("Service/triton-default spec.clusterIP", GONE),
        ("PodDisruptionBudget/triton-default spec.selector.matchLabels.servegate.dev/pool", "a"),
        ("Role/servegate-control rules[0].verbs[1]", GONE),
        ("Role/servegate-control rules[0].apiGroups[0]", "apps"),
        ("Certificate/servegate spec.dnsNames[4]", "servegate-other"),
        ("ScaledObject/triton-default spec.triggers[0].metadata.scalerAddress", "a.b.svc:9090"),
        ("NetworkPolicy/servegate-gateway spec.egress[0].ports[0].port", 8081),
        ("NetworkPolicy/servegate-gateway spec.ingress[1].ports[0].port", "http"),
        ("NetworkPolicy/servegate-control spec.egress[2].ports[1].port", 22),
        ("NetworkPolicy/dns spec.egress[0].ports[0].protocol", "TCP"),
    ),
    "base + prometheus": (
        ("PodMonitor/servegate-gateway spec.podMetricsEndpoints[0].port", "http"),
        ("PodMonitor/servegate-gateway spec.podMetricsEndpoints[0].path", "/metric"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_breaks_a_rule(
    manifests: dict[str, Manifests], program: Program, name: str
) -> None:
    right = manifests[name]
    leaves = {str(leaf): leaf for leaf in right.leaves()}
    unnoticed = []
    for where, value in WRONG[name]:
        leaf = leaves[where]
        wrong = right.with_value(leaf.number, leaf.steps, value)
        if not problems(World(wrong, program)):
            unnoticed.append(f"{where}: {value}")
    assert unnoticed == []


def test_a_query_for_what_there_is_not_breaks_a_rule(
    manifests: dict[str, Manifests], program: Program
) -> None:
    right = manifests["base + prometheus"]
    rules = [leaf for leaf in right.leaves() if str(leaf).startswith("PrometheusRule/")]
    alert = next(leaf for leaf in rules if leaf.path.endswith("expr"))
    page = next(leaf for leaf in rules if leaf.path.endswith("runbook_url"))
    for leaf, value in (
        (alert, "rate(servegate_callz_total[5m]) > 1"),
        (alert, 'servegate_retries_total{zone="a"} > 1'),
        (alert, "sum by (zone) (servegate_retries_total) > 1"),
        (page, "docs/runbooks.md#nothing"),
    ):
        wrong = right.with_value(leaf.number, leaf.steps, value)
        assert problems(World(wrong, program)), value


@pytest.mark.parametrize(
    "kind", ["variable", "command", "flag", "port", "path", "metric", "triton flag", "asks", "page"]
)
def test_the_program_has_facts_of_every_kind(program: Program, kind: str) -> None:
    assert program.facts[kind]
