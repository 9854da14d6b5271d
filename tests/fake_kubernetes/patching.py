"""Patches: how a partial object changes a whole one.

A *merge patch* (RFC 7386) merges maps and replaces lists; null deletes. A *strategic merge patch*,
which Kubernetes has for its own kinds and kubectl sends for them, also merges those lists whose
items have a key, as the API's types say; below is the part of it that workloads use. What it cannot
say by itself it says by directives in the patch:

    $patch: delete | replace         of the map that it is in, or of the item of a list
    $retainKeys: [a, b]              every other key of this map goes
    $deleteFromPrimitiveList/NAME    values that leave the list NAME
    $setElementOrder/NAME            the order of the list NAME

There is no server-side apply: it needs the owner of every field, which the fake does not keep.
"""

from typing import Any

Object = dict[str, Any]

_KEYS = {
    "conditions": "type",
    "containers": "name",
    "env": "name",
    "ephemeralContainers": "name",
    "hostAliases": "ip",
    "imagePullSecrets": "name",
    "initContainers": "name",
    "ownerReferences": "uid",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "secrets": "name",  # of a ServiceAccount
    "topologySpreadConstraints": "topologyKey",
    "volumeDevices": "devicePath",
    "volumeMounts": "mountPath",
    "volumes": "name",
}
_SETS = ("finalizers",)
_ORDER, _LEAVING, _RETAIN = "$setElementOrder/", "$deleteFromPrimitiveList/", "$retainKeys"


def merged(target: Any, patch: Any) -> Any:
    """A merge patch."""
    if not isinstance(patch, dict):
        return patch
    new = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = merged(new.get(name), value)
    return new


def strategically_merged(target: Object, patch: Object, *, within: str = "") -> Object:
    """A strategic merge patch. `within`: the field that holds the two; "" for a whole object."""
    if patch.get("$patch") == "delete":
        return {}
    if patch.get("$patch") == "replace":
        return _plain({name: value for name, value in patch.items() if name != "$patch"})
    new = dict(target)
    if _RETAIN in patch:
        new = {name: value for name, value in new.items() if name in patch[_RETAIN]}
    for name, value in patch.items():
        if name.startswith(_LEAVING):
            field = name.removeprefix(_LEAVING)
            new[field] = [each for each in new.get(field, []) if each not in value]
        elif not name.startswith("$"):
            _merge_field(new, name, value, within)
    for name, order in patch.items():
        if name.startswith(_ORDER):
            _sort(new, name.removeprefix(_ORDER), order, within)
    return new


def _merge_field(new: Object, name: str, value: Any, within: str) -> None:
    key = _key(name, within)
    if value is None:
        new.pop(name, None)
    elif isinstance(value, dict):
        inner = new.get(name)
        new[name] = strategically_merged(
            inner if isinstance(inner, dict) else {}, value, within=name
        )
        if value.get("$patch") == "delete":
            del new[name]
    elif name in _SETS:
        new[name] = list(dict.fromkeys([*new.get(name, []), *value]))
    elif key and isinstance(value, list):
        new[name] = _merged_list(new.get(name) or [], value, key, within=name)
    else:
        new[name] = value


def _merged_list(
    target: list[Object], patch: list[Object], key: str, *, within: str
) -> list[Object]:
    if any(each.get("$patch") == "replace" for each in patch):
        return [_plain(each) for each in patch if "$patch" not in each]
    items = {each.get(key): each for each in target}
    for each in patch:
        if each.get("$patch") == "delete":
            items.pop(each.get(key), None)
        else:
            old = items.get(each.get(key), {})
            items[each.get(key)] = strategically_merged(old, each, within=within)
    return list(items.values())


def _sort(new: Object, name: str, order: list[Any], within: str) -> None:
    """As the patch says; what it does not name comes last."""
    key = _key(name, within)
    wanted = [each.get(key) if isinstance(each, dict) else each for each in order]

    def place(each: Any) -> int:
        value = each.get(key) if isinstance(each, dict) else each
        return wanted.index(value) if value in wanted else len(wanted)

    if name in new:
        new[name] = sorted(new[name], key=place)


def _key(name: str, within: str) -> str:
    """The key of the items of a list; "" for a list that is replaced as a whole."""
    if name == "ports":
        if within in ("containers", "initContainers"):
            return "containerPort"
        return "port" if within == "spec" else ""  # of a Service
    return _KEYS.get(name, "")


def _plain(value: Any) -> Any:
    """Without nulls and directives."""
    return merged({}, value)
