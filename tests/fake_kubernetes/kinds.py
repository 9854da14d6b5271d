"""The kinds that the fake knows: one table, and where each lives in the API.

A cluster knows the lower half only once KEDA, the Gateway API, the Prometheus operator,
cert-manager, KServe and Kubeflow are installed in it. The fake knows them always.
"""

from collections.abc import Mapping
from dataclasses import dataclass

#  API version                kind                    plural                   scope     short names
_BUILT_IN = """
v1                            Namespace               namespaces               cluster   ns
v1                            Node                    nodes                    cluster   no
v1                            PersistentVolume        persistentvolumes        cluster   pv
v1                            ConfigMap               configmaps               namespace cm
v1                            Event                   events                   namespace ev
v1                            LimitRange              limitranges              namespace limits
v1                            PersistentVolumeClaim   persistentvolumeclaims   namespace pvc
v1                            Pod                     pods                     namespace po
v1                            ResourceQuota           resourcequotas           namespace quota
v1                            Secret                  secrets                  namespace -
v1                            Service                 services                 namespace svc
v1                            ServiceAccount          serviceaccounts          namespace sa
apps/v1                       DaemonSet               daemonsets               namespace ds
apps/v1                       Deployment              deployments              namespace deploy
apps/v1                       ReplicaSet              replicasets              namespace rs
apps/v1                       StatefulSet             statefulsets             namespace sts
autoscaling/v2                HorizontalPodAutoscaler horizontalpodautoscalers namespace hpa
batch/v1                      CronJob                 cronjobs                 namespace cj
batch/v1                      Job                     jobs                     namespace -
coordination.k8s.io/v1        Lease                   leases                   namespace -
discovery.k8s.io/v1           EndpointSlice           endpointslices           namespace -
networking.k8s.io/v1          Ingress                 ingresses                namespace ing
networking.k8s.io/v1          IngressClass            ingressclasses           cluster   -
networking.k8s.io/v1          NetworkPolicy           networkpolicies          namespace netpol
node.k8s.io/v1                RuntimeClass            runtimeclasses           cluster   -
policy/v1                     PodDisruptionBudget     poddisruptionbudgets     namespace pdb
rbac.authorization.k8s.io/v1  ClusterRole             clusterroles             cluster   -
rbac.authorization.k8s.io/v1  ClusterRoleBinding      clusterrolebindings      cluster   -
rbac.authorization.k8s.io/v1  Role                    roles                    namespace -
rbac.authorization.k8s.io/v1  RoleBinding             rolebindings             namespace -
resource.k8s.io/v1            DeviceClass             deviceclasses            cluster   -
resource.k8s.io/v1            ResourceClaim           resourceclaims           namespace -
resource.k8s.io/v1            ResourceClaimTemplate   resourceclaimtemplates   namespace -
scheduling.k8s.io/v1          PriorityClass           priorityclasses          cluster   pc
storage.k8s.io/v1             StorageClass            storageclasses           cluster   sc
"""
_CUSTOM = """
cert-manager.io/v1            Certificate             certificates             namespace cert,certs
cert-manager.io/v1            ClusterIssuer           clusterissuers           cluster   -
cert-manager.io/v1            Issuer                  issuers                  namespace -
gateway.networking.k8s.io/v1  BackendTLSPolicy        backendtlspolicies       namespace btlspolicy
gateway.networking.k8s.io/v1  GRPCRoute               grpcroutes               namespace -
gateway.networking.k8s.io/v1  Gateway                 gateways                 namespace gtw
gateway.networking.k8s.io/v1  GatewayClass            gatewayclasses           cluster   gc
gateway.networking.k8s.io/v1  HTTPRoute               httproutes               namespace -
keda.sh/v1alpha1              ScaledJob               scaledjobs               namespace sj
keda.sh/v1alpha1              ScaledObject            scaledobjects            namespace so
keda.sh/v1alpha1              TriggerAuthentication   triggerauthentications   namespace ta
kubeflow.org/v1               PyTorchJob              pytorchjobs              namespace -
kubeflow.org/v1               TFJob                   tfjobs                   namespace -
monitoring.coreos.com/v1      PodMonitor              podmonitors              namespace pmon
monitoring.coreos.com/v1      PrometheusRule          prometheusrules          namespace promrule
monitoring.coreos.com/v1      ServiceMonitor          servicemonitors          namespace smon
serving.kserve.io/v1alpha1    ClusterServingRuntime   clusterservingruntimes   cluster   -
serving.kserve.io/v1alpha1    ServingRuntime          servingruntimes          namespace -
serving.kserve.io/v1beta1     InferenceService        inferenceservices        namespace isvc
trainer.kubeflow.org/v1alpha1 ClusterTrainingRuntime  clustertrainingruntimes  cluster   -
trainer.kubeflow.org/v1alpha1 TrainJob                trainjobs                namespace -
trainer.kubeflow.org/v1alpha1 TrainingRuntime         trainingruntimes         namespace -
"""

# What Kubernetes lets nobody change once the object is there.
_SETTLED: Mapping[str, tuple[str, ...]] = {
    "ClusterRoleBinding": ("roleRef",),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Job": ("spec.completionMode", "spec.selector", "spec.template"),
    "PersistentVolumeClaim": ("spec.accessModes", "spec.selector", "spec.storageClassName"),
    "PriorityClass": ("value",),
    "ReplicaSet": ("spec.selector",),
    "ResourceClaim": ("spec",),
    "ResourceClaimTemplate": ("spec",),
    "RoleBinding": ("roleRef",),
    "RuntimeClass": ("handler",),
    "Service": ("spec.clusterIP",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
    "StorageClass": ("parameters", "provisioner", "reclaimPolicy"),
}


@dataclass(frozen=True, slots=True)
class Kind:
    """One row. `settled`: fields that no change may touch. `is_custom`: it comes from a CRD."""

    api_version: str
    name: str
    plural: str
    is_namespaced: bool
    short_names: tuple[str, ...]
    settled: tuple[str, ...]
    is_custom: bool

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.api_version.rpartition("/")[2]

    @property
    def resource(self) -> str:
        """As messages call it: `deployments.apps`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


@dataclass(frozen=True, slots=True)
class Address:
    """What a path names: a kind, in one namespace ("": in all, or in none), maybe one object."""

    kind: Kind
    namespace: str
    name: str = ""
    subresource: str = ""


def _rows(table: str, *, is_custom: bool) -> list[Kind]:
    kinds = []
    for row in table.strip().splitlines():
        api_version, name, plural, scope, short = row.split()
        shorts = () if short == "-" else tuple(short.split(","))
        settled = _SETTLED.get(name, ())
        kinds.append(
            Kind(api_version, name, plural, scope == "namespace", shorts, settled, is_custom)
        )
    return kinds


KINDS: tuple[Kind, ...] = (
    *_rows(_BUILT_IN, is_custom=False),
    *_rows(_CUSTOM, is_custom=True),
)
_BY_NAME = {kind.name: kind for kind in KINDS}
_BY_PATH = {(kind.api_version, kind.plural): kind for kind in KINDS}


def kind_of(name: str, api_version: str = "") -> Kind:
    """The row of a kind, by its name; the API version has to be that of the row, if it is given."""
    kind = _BY_NAME.get(name)
    if kind is None or api_version not in ("", kind.api_version):
        raise KeyError(f"the fake knows no {name} of {api_version}: add it to kinds.py")
    return kind


def root(api_version: str) -> str:
    """The path below which the kinds of an API version live."""
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"


def locate(path: str) -> Address | None:
    """What a path names, if the API has it: /api/v1/…, /apis/GROUP/VERSION/…"""
    match path.strip("/").split("/"):
        case ["api", version, *rest]:
            return _within(version, rest)
        case ["apis", group, version, *rest]:
            return _within(f"{group}/{version}", rest)
    return None


def _within(api_version: str, parts: list[str]) -> Address | None:
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and (api_version, parts[2]) in _BY_PATH:
        namespace, parts = parts[1], parts[2:]
    kind = _BY_PATH.get((api_version, parts[0])) if parts else None
    if kind is None or len(parts) > 3 or (namespace and not kind.is_namespaced):
        return None
    if kind.is_namespaced and not namespace and len(parts) > 1:
        return None  # an object of this kind is in some namespace
    return Address(kind, namespace, *parts[1:])
