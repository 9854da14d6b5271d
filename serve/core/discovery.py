"""Discovery: where replicas are found while the control plane runs, as `--discover` says it.

| text                                   | read by          | replicas                          |
|----------------------------------------|------------------|-----------------------------------|
| `kubernetes`                           | a pod            | of the Services of its namespace  |
| `kubernetes=NAMESPACE`                 | a pod            | of those of another               |
| `kubernetes=URL/NAMESPACE`             | whoever gets in  | the same, as through a proxy      |
| `dns=HOST:HTTP:GRPC:METRICS[@POOL]`    | anybody          | one at each address of the name   |
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from urllib.parse import urlsplit

from serve.core.errors import Invalid
from serve.core.replicas import Replica

_NAMESPACE = re.compile(r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\Z")  # a label of RFC 1123


@dataclass(frozen=True, slots=True)
class ByKubernetes:
    """The EndpointSlices of a namespace; an empty one is the pod's own.

    Without `url` the API server is the one that the pod's environment names.
    """

    namespace: str = ""
    url: str = ""


@dataclass(frozen=True, slots=True)
class ByName:
    """All addresses of a host name, at each of which a Triton has the ports of `model`.

    `model` is no replica itself: its host is the name that is looked up.
    """

    model: Replica


Place = ByKubernetes | ByName


def places_of(texts: Iterable[str]) -> Mapping[str, Place]:
    """What `--discover` names, by its text; `Invalid` says what is wrong with one."""
    found: dict[str, Place] = {}
    for text in texts:
        if text in found:
            raise Invalid(f"--discover '{text}' occurs twice", try_this="remove one of them")
        found[text] = _place(text)
    return MappingProxyType(found)


def _place(text: str) -> Place:
    kind, mark, rest = text.partition("=")
    if kind == "kubernetes" and bool(mark) == bool(rest):
        return _in_kubernetes(text, rest)
    if kind == "dns":
        return _by_name(text, rest)
    raise Invalid(
        f"'{text}' is not a source of Tritons",
        why="the sources are kubernetes, kubernetes=NAMESPACE, kubernetes=URL/NAMESPACE and "
        "dns=HOST:HTTP:GRPC:METRICS@POOL",
        try_this="--discover kubernetes in a pod, --discover dns=tritons:8000:8001:8002 elsewhere",
    )


def _in_kubernetes(text: str, rest: str) -> ByKubernetes:
    url, _, namespace = rest.rpartition("/")
    if ("/" in rest and not _is_base(url)) or (rest and not _NAMESPACE.match(namespace)):
        raise Invalid(
            f"'{text}' does not name a Kubernetes namespace",
            why="a namespace has up to 63 lower-case letters, digits and '-'; an http or https URL "
            "can precede it",
            try_this="--discover kubernetes=http://127.0.0.1:8001/servegate, with kubectl proxy",
        )
    return ByKubernetes(namespace, url)


def _is_base(url: str) -> bool:
    """Whether paths can be put behind it; a name and a password have no place in it."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return usable and not (parts.query or parts.fragment or parts.username or parts.password)


def _by_name(text: str, rest: str) -> ByName:
    address, mark, pool = rest.partition("@")
    try:
        model = Replica.parse(address, name=text, pool=pool or "default")
    except Invalid as error:
        raise _no_name(text) from error
    if mark and not pool:
        raise _no_name(text)
    return ByName(model)


def _no_name(text: str) -> Invalid:
    return Invalid(
        f"'{text}' is not a DNS source of Tritons",
        why="the form is dns=HOST:HTTP:GRPC:METRICS@POOL, with ports from 1 to 65535",
        try_this="--discover dns=tritons.internal:8000:8001:8002@default",
    )
