"""What the API says of itself: its version, its kinds, and what a patch of each may be asked.

kubectl reads the kinds in the plain form (/api, /apis, and one list for each version); a real
server also has one list of all. Of OpenAPI v3 there is what kubectl asks for before it applies:
that a patch of the kind takes `fieldValidation` and `dryRun`. So kubectl leaves the validation to
the server, as it does with every Kubernetes since 1.25, **and the fake validates no fields**: that
is what tests/k8s/test_schemas.py is for. There are no schemas in it and no OpenAPI v2, so that
kubectl computes patches from the types that it has itself.
"""

from typing import Any

from fake_kubernetes.kinds import KINDS, Kind, root

_VERSION = "v1.34.0"
_VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]
_PARAMETERS = ("dryRun", "fieldManager", "fieldValidation")
_API_VERSIONS = sorted({kind.api_version for kind in KINDS})


def page(path: str) -> Any | None:
    """The answer to a question about the API itself; None where it is none."""
    if path in ("/healthz", "/livez", "/readyz"):
        return {"status": "ok"}
    if path == "/version":
        return {"major": "1", "minor": "34", "gitVersion": f"{_VERSION}+fake", "platform": "fake"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
    if path == "/openapi/v3":
        return {"paths": {_key(each): {"serverRelativeURL": _open(each)} for each in _API_VERSIONS}}
    for api_version in _API_VERSIONS:
        if path == root(api_version):
            return _resources(api_version)
        if path == _open(api_version):
            return _open_api(api_version)
    return None


def _groups() -> list[dict[str, Any]]:
    groups = []
    for api_version in _API_VERSIONS:
        group, _, version = api_version.rpartition("/")
        if group:
            named = {"groupVersion": api_version, "version": version}
            groups.append({"name": group, "versions": [named], "preferredVersion": named})
    return groups


def _resources(api_version: str) -> dict[str, Any]:
    resources = [
        {
            "name": kind.plural,
            "singularName": kind.name.lower(),
            "namespaced": kind.is_namespaced,
            "kind": kind.name,
            "verbs": _VERBS,
            "shortNames": list(kind.short_names),
        }
        for kind in _kinds(api_version)
    ]
    named = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version}
    return {**named, "resources": resources}


def _open_api(api_version: str) -> dict[str, Any]:
    paths = {}
    for kind in _kinds(api_version):
        within = "/namespaces/{namespace}" if kind.is_namespaced else ""
        path = f"{root(api_version)}{within}/{kind.plural}/{{name}}"
        paths[path] = {"patch": _patch_operation(kind)}
    about = {"title": "A fake Kubernetes API", "version": _VERSION}
    return {"openapi": "3.0.0", "info": about, "paths": paths, "components": {"schemas": {}}}


def _patch_operation(kind: Kind) -> dict[str, Any]:
    named = {"group": kind.group, "kind": kind.name, "version": kind.version}
    asked = [{"in": "query", "name": name, "schema": {"type": "string"}} for name in _PARAMETERS]
    content = {"application/merge-patch+json": {"schema": {"type": "object"}}}
    return {
        "parameters": asked,
        "requestBody": {"content": content},
        "responses": {"200": {"description": "OK"}},
        "x-kubernetes-action": "patch",
        "x-kubernetes-group-version-kind": named,
    }


def _kinds(api_version: str) -> list[Kind]:
    return [kind for kind in KINDS if kind.api_version == api_version]


def _key(api_version: str) -> str:
    return root(api_version).removeprefix("/")


def _open(api_version: str) -> str:
    return f"/openapi/v3/{_key(api_version)}"
