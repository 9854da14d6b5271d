"""The Job of a load test: it makes the same calls, shares its report, and has no rights."""

from typing import Any

import yaml
from refusals import refusal

from serve.core.errors import Invalid
from serve.workbench.loadtest.job import LoadJobPlace, manifest

WORDS = ("--model", "digits", "--rate", "200", "--for", "60s", "--slo", "p99<20ms,errors<0.1%")


def documents(*words: str, **changes: Any) -> list[Any]:
    place = LoadJobPlace(**{"image": "servegate:1", **changes})
    return list(yaml.safe_load_all(manifest("Digits, at 200", words or WORDS, place)))


def test_one_worker_is_one_pod_that_runs_the_same_command_and_shares_its_report() -> None:
    [job] = documents()
    spec = job["spec"]
    [container] = spec["template"]["spec"]["containers"]
    assert container["command"][:11] == ["servegate", "load", "run", *WORDS]
    assert "--share" in container["command"]
    assert "completionMode" not in spec
    assert (spec["backoffLimit"], job["metadata"]["name"]) == (0, "load-digits-at-200")


def test_several_workers_find_the_master_by_a_service_without_an_address() -> None:
    service, job = documents(workers=3)
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    pod = spec["template"]["spec"]
    name = job["metadata"]["name"]
    assert pod["subdomain"] == service["metadata"]["name"] == name
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    [container] = pod["containers"]
    assert f"--master {name}-0.{name}:5557" in container["command"][2]
    assert container["command"][-4:] == ["--listen", "0.0.0.0:5557", "--expect-workers", "3"]


def test_what_is_asked_for_is_never_read_by_the_shell() -> None:
    _, job = documents("--model", "$(rm -rf /); `x`", "--rate", "1", workers=2)
    _, _, script, *arguments = job["spec"]["template"]["spec"]["containers"][0]["command"]
    assert "rm -rf" not in script
    assert "$(rm -rf /); `x`" in arguments


def test_the_key_comes_from_a_secret_and_never_stands_in_the_command() -> None:
    [job] = documents(key_secret="load-key")
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"][-2:] == ["--key-file", "/secrets/key"]
    assert {"name": "key", "mountPath": "/secrets", "readOnly": True} in container["volumeMounts"]
    assert pod["volumes"][1]["secret"]["secretName"] == "load-key"


def test_what_the_job_decides_is_refused() -> None:
    for word in ("--listen", "--out=/x", "--workers", "--key-file"):
        error = refusal(Invalid, documents, "--model", "digits", word, "x")
        assert "sets it itself" in str(error)
