"""The claims, see `claims.py`: how, `Kind/name path`, and what it is.

A star is anything but a space; a line that begins with a bar goes on with the patterns above it.
"""

_FITTING = (
    *("CONTROL", "ADMIN_URL", "GATEWAY", "DISCOVER", "HOST", "ADMIN_HOST", "KEDA_PORT", "AUTH"),
    *("INSECURE", "DELIVERY", "DELIVERY_FOLDER", "HTTP_PORT", "GRPC_PORT", "METRICS_PORT"),
    *("ADMIN_PORT", "TLS_CERT", "TLS_KEY", "TLS_CLIENT_CA"),
)
_OF_CLIENTS = ("ADMIN_URL", "URL", "GRPC_URL", "METRICS_URL", "CACERT", "CLIENT_CERT", "CLIENT_KEY")

_SETTINGS = "\n".join(
    (
        *(
            f"BOTH ConfigMap/* data.SERVEGATE_{name}  a setting that others rely on"
            for name in _FITTING
        ),
        "KEY ConfigMap/* data.SERVEGATE_*  a setting; its value is the operator's",
        *(
            f"EXACT * *.env[SERVEGATE_{name}].value  where a client finds us"
            for name in (*_OF_CLIENTS, *_FITTING)
        ),
    )
)

CLAIMS = f"""
{_SETTINGS}

# --- what is wherever an object is
NOT * apiVersion  the schemas are for that
NOT * kind  the schemas are for that
NOT ServiceAccount/* metadata.annotations.*  an identity in the cloud
NOT * metadata.annotations.*  for people and for other programs
NOT * metadata.creationTimestamp  Kubernetes'
EXACT Namespace/* metadata.name  the namespace of addresses and of discovery
NOT Namespace/* metadata.labels.*  Pod Security and people
EXACT * metadata.namespace  addresses and discovery assume it
KEY Service/*-tritons metadata.labels.servegate.dev/pool  the label; any name will do
BOTH Service/* metadata.labels.servegate.dev/pool  the label that discovery chooses by
NOT * metadata.labels.*  for people; pods are chosen by those of their templates

# --- container files
EXACT Image/* metadata.name  the image that a pod runs
NOT Image/* from  the base, which is chosen by hand
KEY Image/* env.SERVEGATE_*  a setting
NOT Image/* env.*  Python's and the kernel's
EXACT Image/* user  whom pods run as
EXACT Image/* entrypoint[*]  the command
GIVEN Image/* extras[*]  an extra of the package
GIVEN Image/* expose[*]  a port
NOT Image/* expose  it exposes none
NOT Image/* workdir  a folder that is there
NOT Image/* stopsignal  the usual one
NOT Image/* cmd[*]  none of ours has one

# --- pods
BOTH ServingRuntime/* spec.labels.*  by which policies choose
EXACT InferenceService/* spec.predictor.securityContext.*  core/pods.py
BOTH * spec.template.metadata.labels.*  by which Services, policies and monitors choose
NOT * spec.template.metadata.annotations.*  for other programs
NOT Job/* spec.backoffLimit|Job/* spec.*DeadlineSeconds
|Job/* spec.ttlSecondsAfterFinished  how often
NOT Job/* spec.completion*|Job/* spec.parallelism|Job/* spec.suspend  how many
BOTH * spec.selector.matchLabels.*|Service/* spec.selector.*  which pods it is about
EXACT * *ontainers[*].image  the image
NOT * *ontainers[*].imagePullPolicy  the cluster's
NOT * *ontainers[*].name  what patches and people call it
EXACT * *ontainers[*].args[*]|* *ontainers[*].command[*]  commands and flags
NOT * *ontainers[*].restartPolicy|* *.spec.restartPolicy|* *ontainers[*].workingDir  how it is run
NOT * *.env[HOME].*|* *.env[TMPDIR].*|* *.env[IMAGE].*|* *.env[SSL_CERT_DIR].*  not ours
GIVEN * *.env[SSL_CERT_FILE].value  whom Python trusts beside our own certificate
EXACT * *.env[SERVEGATE_*].name|* *.env[AWS_*].name|* *.env[POD_NAME].name
|* *.env[KEDA_KEY].name  a variable
NOT * *.env[*].name  a variable of others
NOT * *.env[*].value  the operator's
EXACT * *.valueFrom.secretKeyRef.name|* *.valueFrom.secretKeyRef.key  a Secret's entry
EXACT * *.valueFrom.configMapKeyRef.name|* *.valueFrom.configMapKeyRef.key  a setting
EXACT * *.valueFrom.fieldRef.fieldPath  what a replica is called
NOT * *.valueFrom.fieldRef.apiVersion|* *.optional  Kubernetes'
EXACT * *.envFrom[*].configMapRef.name|* *.envFrom[*].secretRef.name  settings and credentials
EXACT * *ontainers[*].ports[*].name|* *ontainers[*].ports[*].containerPort  a port
GIVEN * *ontainers[*].ports[*].protocol  TCP
EXACT * *Probe.httpGet.path|* *Probe.httpGet.port|* *Probe.httpGet.scheme  what is asked, where
NOT * *Probe.*  how often
SOME * *.lifecycle.preStop.sleep.seconds  the wait before a stop
ENOUGH * *.terminationGracePeriodSeconds  the time to end
EXACT * *.volumeMounts[*].name  which volume is there
NOT * *.volumeMounts[*].readOnly|* *.volumeMounts[*].subPath  how it is mounted
EXACT Job/* *.volumeMounts[key].*|Job/* *.volumeMounts[tls].mountPath  where flags look
NOT Job/* *.volumeMounts[*].*  for what runs in it
EXACT * *.volumeMounts[*].mountPath  where settings and flags look
EXACT * *.volumes[*].name  which volume is mounted
EXACT * *.volumes[*].secret.secretName  the Secret that settings look into
EXACT * *.volumes[*].secret.items[*].key|* *.volumes[*].secret.items[*].path  its entries
NOT * *.volumes[*].secret.defaultMode|* *.volumes[*].emptyDir*  room and modes
EXACT * *.volumes[*].persistentVolumeClaim.claimName  the claim
NOT * *.volumes[*].persistentVolumeClaim.readOnly|* *.volumes[*].configMap.*
|* *.volumes[*].hostPath.*  the cluster's
NOT * *.seccompProfile.localhostProfile  none of ours has one
EXACT * *.spec.securityContext.*|* *ontainers[*].securityContext.*  core/pods.py
EXACT Deployment/servegate-control *.automountServiceAccountToken  discovery shows it
EXACT ServiceAccount/* automountServiceAccountToken  nobody else has one
GIVEN * *.automountServiceAccountToken  the account says so, too
EXACT * *.serviceAccountName|* *.enableServiceLinks  rights
BOTH * *.topologySpreadConstraints[*].labelSelector.matchLabels.*  its own pods
NOT * *.topologySpreadConstraints*  where pods go
NOT * *.resources.*|* *.resourceClaims*  how much
NOT * *.tolerations*|* *.affinity*|* *.nodeSelector.*|* *.runtimeClassName
|* *.priorityClassName  where pods go
NOT * *.imagePullSecrets*  the registry's
NOT * *.host*|* *.shareProcessNamespace|* *.dnsPolicy  the node's
EXACT Job/* *.subdomain  by which pods of a Job find each other
NOT * spec.replicas|* spec.strategy.*|* spec.minReadySeconds
|* spec.progressDeadlineSeconds  how it is rolled out
NOT * spec.revisionHistoryLimit|* *.initContainers
|Image/* env  how it is rolled out, and what is empty

# --- Services and the rim
EXACT Service/servegate* metadata.name|Service/triton-* metadata.name
|Service/load-* metadata.name  how it is called
NOT Service/load-* spec.ports[*].name  what people call it
EXACT Service/* spec.ports[*].name|Service/* spec.ports[*].port  a port
GIVEN Service/* spec.ports[*].targetPort  a port, that of the Service if there is none
GIVEN Service/* spec.ports[metrics].appProtocol|Service/* spec.ports[*].protocol  what is spoken
EXACT Service/* spec.ports[*].appProtocol  what is spoken
EXACT Service/* spec.clusterIP
|Service/* spec.publishNotReadyAddresses  what discovery and sums rely on
NOT Service/* spec.type|Service/* spec.load*|Service/* spec.external*
|Service/* spec.allocate*  the way in
NOT Service/* spec.internal*|Service/* spec.session*|Service/* spec.traffic*  the way in
EXACT *Route/* spec.rules[*].backendRefs[*].name
|*Route/* spec.rules[*].backendRefs[*].port  whom it leads to
NOT *Route/* *  the rim's: hosts, listeners, times
NOT Gateway/* *  the rim's
EXACT Ingress/* *.backend.service.name|Ingress/* *.backend.service.port.name  whom it leads to
EXACT Ingress/* *.path  the root
NOT Ingress/* *  the rim's
NOT BackendTLSPolicy/* *  the rim's

# --- policies and rights
BOTH NetworkPolicy/* spec.podSelector.matchLabels.*  whom it is about
NOT NetworkPolicy/metadata-server spec.podSelector.*  who has an identity in the cloud
EXACT NetworkPolicy/* *.podSelector.matchExpressions[*].*  whom it is about
GIVEN NetworkPolicy/* spec.policyTypes[*]  ways; where a policy has rules for one it is needed
NOT NetworkPolicy/*-metrics spec.ingress[*].from[*].*  Prometheus'
EXACT NetworkPolicy/* *.ports[*].port  a port
GIVEN NetworkPolicy/* *.ports[*].protocol  TCP, or UDP for names
NOT NetworkPolicy/* *.namespaceSelector*|NetworkPolicy/* *.ipBlock*  where others are
BOTH NetworkPolicy/* *.podSelector.matchLabels.*  ours
NOT NetworkPolicy/* *.podSelector|NetworkPolicy/* *.podSelector.match*  everybody in this namespace
NOT NetworkPolicy/* metadata.name|NetworkPolicy/* spec.podSelector
|NetworkPolicy/* spec.*gress[*]  everybody
EXACT Role/* metadata.name|Role/* rules[*].*  what discovery asks
EXACT RoleBinding/* roleRef.*|RoleBinding/* subjects[*].*  who may
NOT RoleBinding/* metadata.name  for people
EXACT ServiceAccount/* metadata.name|ServiceAccount/* automountServiceAccountToken  who pods are
BOTH PodDisruptionBudget/* spec.selector.matchLabels.*  which pods
NOT PodDisruptionBudget/* *  how many

# --- autoscalers
EXACT HorizontalPodAutoscaler/* spec.scaleTargetRef.name
|HorizontalPodAutoscaler/* spec.scaleTargetRef.kind  what is scaled
EXACT HorizontalPodAutoscaler/* spec.metrics[*].external.metric.name  a metric
BOTH HorizontalPodAutoscaler/* spec.metrics[*].external.metric.selector.matchLabels.*  the pool
EXACT HorizontalPodAutoscaler/* spec.metrics[*].external.target.*  one per replica
NOT HorizontalPodAutoscaler/* *  bounds and times
GIVEN ScaledObject/* spec.scaleTargetRef.envSourceContainerName  whose environment it reads
EXACT ScaledObject/* spec.scaleTargetRef.*
|ScaledObject/* spec.triggers[*].metricType  what is scaled
EXACT ScaledObject/* spec.triggers[*].type
|ScaledObject/* spec.triggers[*].authenticationRef.name  how it asks
BOTH ScaledObject/* spec.triggers[*].metadata.pool
|ScaledObject/* spec.triggers[*].metadata.key*  the question
EXACT ScaledObject/* spec.triggers[*].metadata.*  whom it asks
NOT ScaledObject/* *  bounds and times
EXACT TriggerAuthentication/* *  credentials

# --- certificates
EXACT Certificate/servegate spec.dnsNames[*]
|Certificate/servegate spec.secretName  who is called, and where it is kept
NOT Certificate/* *|Issuer/* *|ClusterIssuer/* *  cert-manager's

# --- what is seen
BOTH PodMonitor/* spec.selector.matchLabels.*  who is read
EXACT PodMonitor/* spec.podMetricsEndpoints[*].port  where
GIVEN PodMonitor/* spec.podMetricsEndpoints[*].path  where, which is /metrics if it is not said
EXACT PodMonitor/* spec.podMetricsEndpoints[*].scheme  how
EXACT PodMonitor/* *.relabelings[*].sourceLabels[*]
|PodMonitor/* *.relabelings[*].targetLabel  the pool's label
NOT PodMonitor/* *  how often, and whom it trusts
NAMES PrometheusRule/* *.expr|PrometheusRule/* *.annotations.*  metrics and labels
EXACT PrometheusRule/* *.alert  the heading of its page
NOT PrometheusRule/* *  when, and for whom
NAMES ConfigMap/* data.*.expr|ConfigMap/* data.*.query
|ConfigMap/* data.*.definition  metrics and labels
NAMES ConfigMap/* data.*.legendFormat  labels
NOT ConfigMap/* data.*  how it looks
NAMES PrometheusAdapter/* *.seriesQuery|PrometheusAdapter/* *.metricsQuery  metrics and labels
NOT PrometheusAdapter/* *  the adapter's

# --- KServe
EXACT InferenceService/* metadata.name|ServingRuntime/* metadata.name  who belongs together
EXACT InferenceService/* spec.predictor.model.runtime  the runtime
EXACT InferenceService/* spec.predictor.model.modelFormat.*  what the runtime takes
EXACT InferenceService/* spec.predictor.model.protocolVersion  what the runtime speaks
NOT InferenceService/* spec.predictor.*|ServingRuntime/* spec.*  KServe's: what it brings, how many

# --- the rest
EXACT ConfigMap/servegate metadata.name  the settings
EXACT Deployment/triton-* metadata.name  a pool
EXACT PersistentVolumeClaim/* metadata.name  what a volume claims
NOT PersistentVolumeClaim/* *|StorageClass/* *|PersistentVolume/* *  the cluster's
NOT ResourceClaimTemplate/* *|DeviceClass/* *|RuntimeClass/* *|PriorityClass/* *  the cluster's
NOT * metadata.name  what people call it
NOT Secret/* *  entries are facts of the documents
"""
