"""The Kubernetes Job that makes a load test from within the cluster.

One worker is one pod that runs the command as it was given. Several are an Indexed Job: pod 0 is
the master, which others find through a Service without an address of its own, and which writes the
report; it shares it with the gateway, because the pod's disk goes with the pod.

Source: batch/v1 Job, and its documentation of indexed Jobs with pod-to-pod communication.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from serve.core import pods
from serve.core.errors import Invalid

PORT = 5557  # of the master, as locust has it
FOLDER = "/reports"
_KEY = "/secrets/key"
_ASKED_ALREADY = ("--listen", "--expect-workers", "--workers", "--key-file", "--out", "--share")


@dataclass(frozen=True, slots=True)
class LoadJobPlace:
    """Where it runs. `workers`: pods that call, each on `cpu` cores of its own.

    `key_secret`: a Secret whose entry `key` is the API key, or empty. `seconds` until it is given
    up: longer than the run.
    """

    image: str
    namespace: str = ""
    workers: int = 1
    key_secret: str = ""
    cpu: str = "1"
    memory: str = "1Gi"
    seconds: int = 3600


def manifest(name: str, words: Sequence[str], place: LoadJobPlace) -> str:
    """The Job, and what it needs beside it, as YAML.

    `words` are what would be written behind `servegate load run`. `Invalid` for options that the
    Job itself decides.
    """
    for word in words:
        if word.partition("=")[0] in _ASKED_ALREADY:
            raise Invalid(f"'{word}' is not allowed in a Job", why="the Job sets it itself")
    if place.workers < 1:
        raise Invalid(
            f"{place.workers} workers are not enough", why="a load test needs at least one"
        )
    label = pods.object_name(f"load-{name}", room=20)
    documents = [_job(label, words, place)]
    if place.workers > 1:
        documents.insert(0, _service(label, place))
    text: str = yaml.safe_dump_all(documents, sort_keys=False, width=100)
    return text


def _service(label: str, place: LoadJobPlace) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(label, place),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"batch.kubernetes.io/job-name": label},
            "ports": [{"name": "locust", "port": PORT, "protocol": "TCP"}],
        },
    }


def _job(label: str, words: Sequence[str], place: LoadJobPlace) -> dict[str, Any]:
    count = place.workers + 1 if place.workers > 1 else 1  # the master calls nobody itself
    many = {"completionMode": "Indexed", "completions": count, "parallelism": count}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(label, place),
        "spec": {
            **(many if count > 1 else {}),
            "backoffLimit": 0,
            "activeDeadlineSeconds": place.seconds,
            "ttlSecondsAfterFinished": 86400,
            "template": {
                "metadata": {"labels": pods.labels("load")},
                "spec": _pod(label, words, place),
            },
        },
    }


def _pod(label: str, words: Sequence[str], place: LoadJobPlace) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = [{"name": "reports", "emptyDir": {"sizeLimit": "1Gi"}}]
    if place.key_secret:
        secret = {"secretName": place.key_secret, "items": [{"key": "key", "path": "key"}]}
        volumes.append({"name": "key", "secret": secret})
    pod = {
        **pods.pod(),
        "restartPolicy": "Never",
        "containers": [_container(label, words, place)],
        "volumes": volumes,
    }
    return pod | {"subdomain": label} if place.workers > 1 else pod


def _container(label: str, words: Sequence[str], place: LoadJobPlace) -> dict[str, Any]:
    resources = {"cpu": place.cpu, "memory": place.memory, "ephemeral-storage": "1Gi"}
    mounts: list[dict[str, Any]] = [{"name": "reports", "mountPath": FOLDER}]
    if place.key_secret:
        mounts.append({"name": "key", "mountPath": "/secrets", "readOnly": True})
    return {
        "name": "load",
        "image": place.image,
        **_command(label, words, place),
        "env": [{"name": "HOME", "value": FOLDER}, {"name": "TMPDIR", "value": FOLDER}],
        "workingDir": FOLDER,
        "resources": {"requests": resources, "limits": dict(resources)},
        "securityContext": pods.container_security(),
        "volumeMounts": mounts,
    }


def _command(label: str, words: Sequence[str], place: LoadJobPlace) -> dict[str, Any]:
    run = ["servegate", "load", "run", *words, "--json", "--share", "--out", FOLDER]
    if place.key_secret:
        run += ["--key-file", _KEY]
    if place.workers == 1:
        return {"command": run}
    listen = ["--listen", f"0.0.0.0:{PORT}", "--expect-workers", str(place.workers)]
    worker = ["servegate", "load", "worker", "--master", f"{label}-0.{label}:{PORT}"]
    # The arguments follow the script, so that nothing in them is read by the shell.
    script = f'if [ "$JOB_COMPLETION_INDEX" = 0 ]; then exec "$@"; fi; exec {" ".join(worker)}'
    return {"command": ["sh", "-c", script, "load", *run, *listen]}


def _metadata(label: str, place: LoadJobPlace) -> dict[str, Any]:
    named: dict[str, Any] = {"name": label}
    if place.namespace:
        named["namespace"] = place.namespace
    return named | {"labels": pods.labels("load")}
