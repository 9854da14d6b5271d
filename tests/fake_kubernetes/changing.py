"""Create, replace, patch and delete: what is checked before it is done, and what is answered."""

import json
from collections.abc import Mapping
from typing import Any

from fake_kubernetes.kinds import Address, Kind, kind_of
from fake_kubernetes.objects import Objects, completed, generated
from fake_kubernetes.patching import merged, strategically_merged
from fake_kubernetes.refusals import (
    Refusal,
    already_exists,
    conflict,
    details_of,
    invalid,
    not_found,
    unknown_path,
)

Object = dict[str, Any]

_STRATEGIC = "application/strategic-merge-patch+json"
_MERGE = "application/merge-patch+json"


def create(objects: Objects, address: Address, body: bytes, query: Mapping[str, str]) -> Object:
    given = _read(address, body)
    metadata = given["metadata"]
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated(metadata["generateName"])
    name = metadata.get("name", "")
    if not name:
        raise invalid(address.kind, "", "metadata.name", "name or generateName is required")
    if address.namespace and objects.get(kind_of("Namespace"), "", address.namespace) is None:
        raise not_found(kind_of("Namespace"), address.namespace)
    if objects.get(address.kind, address.namespace, name) is not None:
        raise already_exists(address.kind, name)
    return _keep(objects, address.kind, None, given, query)


def replace(objects: Objects, address: Address, body: bytes, query: Mapping[str, str]) -> Object:
    old = existing(objects, address)
    given = _read(address, body)
    if given["metadata"].get("name") != address.name:
        raise Refusal(400, "the name of the object does not match the name on the URL")
    return _keep(objects, address.kind, old, given, query)


def patch(
    objects: Objects, address: Address, body: bytes, query: Mapping[str, str], form: str
) -> Object:
    """`form` is the content type, which says what kind of patch it is."""
    if form not in (_MERGE, _STRATEGIC) or (form == _STRATEGIC and address.kind.is_custom):
        raise Refusal(415, f"the body of the request was in an unsupported format: {form}")
    old = existing(objects, address)
    change = _json(body)
    apply = merged if form == _MERGE else strategically_merged
    return _keep(objects, address.kind, old, apply(old, change), query)


def delete(objects: Objects, address: Address, query: Mapping[str, str]) -> Object:
    old = existing(objects, address)
    if not _is_trial(query):
        objects.delete(address.kind, address.namespace, address.name)
    details = details_of(address.kind, address.name, uid=old["metadata"]["uid"])
    said = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    return {**said, "details": details}


def existing(objects: Objects, address: Address) -> Object:
    """The object that an address names."""
    if address.subresource or not address.name:
        raise unknown_path()
    found = objects.get(address.kind, address.namespace, address.name)
    if found is None:
        raise not_found(address.kind, address.name)
    return found


def _keep(
    objects: Objects, kind: Kind, old: Object | None, new: Object, query: Mapping[str, str]
) -> Object:
    """Put it there, if it is allowed, and is no trial, and changes anything."""
    name = new["metadata"]["name"]
    if old is not None:
        asked = new["metadata"].get("resourceVersion")
        if asked not in (None, "", old["metadata"]["resourceVersion"]):
            raise conflict(kind, name)
        for path in kind.settled:
            if _at(old, path) != _at(new, path):
                raise invalid(kind, name, path, "Invalid value: field is immutable")
    whole = completed(kind, new, old)
    return whole if _is_trial(query) or whole == old else objects.put(new)


def _is_trial(query: Mapping[str, str]) -> bool:
    return query.get("dryRun") == "All"


def _read(address: Address, body: bytes) -> Object:
    """An object that belongs at this address."""
    given = _json(body)
    kind = address.kind
    if (given.get("apiVersion"), given.get("kind")) != (kind.api_version, kind.name):
        raise Refusal(400, f"the object provided is unrecognized (must be of type {kind.name})")
    metadata = given.setdefault("metadata", {})
    if kind.is_namespaced:
        if metadata.setdefault("namespace", address.namespace) != address.namespace:
            raise Refusal(
                400,
                "the namespace of the provided object does not match the namespace sent on the "
                "request",
            )
    else:
        metadata.pop("namespace", None)
    return given


def _json(body: bytes) -> Object:
    try:
        given = json.loads(body)
    except ValueError as error:
        raise Refusal(400, f"the object provided is no JSON: {error}") from error
    if not isinstance(given, dict):
        raise Refusal(400, "the object provided is no JSON object")
    return given


def _at(each: Object, path: str) -> Any:
    value: Any = each
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value
