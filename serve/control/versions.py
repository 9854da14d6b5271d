"""Version records: what the store knows of each version, read as values.

The record's kind is `version`, its key `model:number`. The store orders its changes like those of a
route; the files are in the storage, named by the manifest. A record goes on from state to state,
each time with `if_match`, so that two control planes never work on one version at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from serve.core.flavours import VersionFlavours
from serve.core.versions import Provenance, VersionState
from serve.triton import config as triton_config
from serve.triton.config import Configuration

_parsed = lru_cache(maxsize=4096)(triton_config.parse)
_forms = lru_cache(maxsize=1024)(VersionFlavours.parse)
VERSION = "version"
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PublishedVersion:
    """One numbered version. Times are seconds of the epoch, sizes bytes.

    `physical`, `group` and `config` (canonical config.pbtxt) are empty before it is checked;
    `flavours` (canonical flavours.json) also where it has none.
    `memory` is what its load added to a Triton in quarantine; None when that was not measured.
    `labels` wait to name it as soon as it is ready; `live`: all calls go to it then. Both are
    emptied once done. `keep`: it stays loaded although nothing refers to it. `output_labels` are
    the texts of label files by output name.
    """

    model: str
    number: int
    state: VersionState
    content: str
    provenance: Provenance
    upload: str = ""
    reason: str = ""
    physical: str = ""
    group: str = ""
    config: str = ""
    flavours: str = ""
    size: int = 0
    has_contract: bool = False
    memory: int | None = None
    labels: tuple[str, ...] = ()
    live: bool = False
    keep: bool = False
    findings: tuple[str, ...] = ()  # warnings of lint and quarantine
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    signature: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    output_labels: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: _NONE)
    preprocessing: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    output_kinds: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    card: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    times: Mapping[str, float] = field(default_factory=lambda: _NONE)  # when it reached each state
    etag: str = ""  # of the record, for if_match; not part of the body

    @property
    def key(self) -> str:
        """The record's key in the store."""
        return version_key(self.model, self.number)

    @property
    def configuration(self) -> Configuration:
        """What `config` says; records are read again and again, each text is parsed once."""
        return _parsed(self.config)

    @property
    def forms(self) -> VersionFlavours:
        """What `flavours` says: the forms in which it can run."""
        return _forms(self.flavours)

    @property
    def is_published(self) -> bool:
        """Whether replicas may hold it."""
        return self.state is VersionState.PUBLISHED

    def moved(self, state: VersionState, at: float, **changes: Any) -> "PublishedVersion":
        """The same version in another state, reached at `at`."""
        times = MappingProxyType({**self.times, state.value: at})
        return replace(self, state=state, times=times, **changes)

    def to_body(self) -> dict[str, Any]:
        """What the store keeps."""
        return {
            "state": self.state.value,
            "content": self.content,
            "provenance": self.provenance.to_json(),
            "upload": self.upload,
            "reason": self.reason,
            "physical": self.physical,
            "group": self.group,
            "config": self.config,
            "flavours": self.flavours,
            "size": self.size,
            "has_contract": self.has_contract,
            "memory": self.memory,
            "labels": list(self.labels),
            "live": self.live,
            "keep": self.keep,
            "findings": list(self.findings),
            "tags": dict(self.tags),
            "signature": dict(self.signature),
            "output_labels": {name: list(texts) for name, texts in self.output_labels.items()},
            "preprocessing": dict(self.preprocessing),
            "output_kinds": dict(self.output_kinds),
            "card": dict(self.card),
            "times": dict(self.times),
        }


def version_key(model: str, number: int) -> str:
    """The store's key of a version record."""
    return f"{model}:{number}"


def version_of(key: str, body: Mapping[str, Any], etag: str = "") -> PublishedVersion:
    """The record in a stored body."""
    model, _, number = key.rpartition(":")
    return PublishedVersion(
        model=model,
        number=int(number),
        state=VersionState(body["state"]),
        content=body["content"],
        provenance=Provenance.from_json(body["provenance"]),
        upload=body["upload"],
        reason=body["reason"],
        physical=body["physical"],
        group=body["group"],
        config=body["config"],
        flavours=str(body.get("flavours", "")),  # which older records do not have
        size=body["size"],
        has_contract=body["has_contract"],
        memory=body["memory"],
        labels=tuple(body["labels"]),
        live=body["live"],
        keep=bool(body.get("keep")),  # as above
        findings=tuple(body["findings"]),
        tags=MappingProxyType(dict(body["tags"])),
        signature=MappingProxyType(dict(body["signature"])),
        output_labels=MappingProxyType(
            {name: tuple(texts) for name, texts in body["output_labels"].items()}
        ),
        preprocessing=MappingProxyType(dict(body["preprocessing"])),
        output_kinds=MappingProxyType(dict(body.get("output_kinds", {}))),
        card=MappingProxyType(dict(body["card"])),
        times=MappingProxyType(dict(body["times"])),
        etag=etag,
    )
