"""Flavours: further runnable forms of a version, each only for the machines that can run it.

All files of all flavours lie in the same version folder. config.pbtxt is the base, which runs
anywhere; `flavours.json` beside it lists the others, the preferred first:

    {"format": 1, "base": true, "flavours": [
      {"name": "plan-sm90", "file": "model.plan-sm90.plan", "backend": "tensorrt",
       "needs": {"compute_capability": ["9.0"], "tensorrt": ["10.13.2"]}},
      {"name": "onnx+trt", "needs": {"gpu": true}, "config": {"optimization": {…}}}]}

| in `needs`           | a machine fulfils it                                                      |
|----------------------|---------------------------------------------------------------------------|
| `gpu`                | when it is known to have a GPU                                            |
| `compute_capability` | when its GPU has one of these; `8.0+` is that one or a later one          |
| `tensorrt`           | when one of these and its version agree in all numbers that both name     |

What nobody has said of a machine it does not have: then only the base runs there. With
`"base": false` config.pbtxt is only what the flavours have in common, and is not loaded by itself.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from serve.core.errors import Invalid
from serve.core.versions import FLAVOURS

FORMAT = 1
BASE = "base"  # the name of what config.pbtxt says by itself
_MOST = 32  # flavours of a version
_NAME = re.compile(r"^[a-z0-9][a-z0-9._+-]{0,62}\Z")
CAPABILITY = re.compile(r"^[0-9]{1,2}\.[0-9]\Z")
_CAPABILITY_NEEDED = re.compile(r"^[0-9]{1,2}\.[0-9]\+?\Z")
_VERSION = re.compile(r"^[0-9]{1,4}(\.[0-9]{1,4}){0,3}\Z")
_PART = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}\Z")  # as in core.versions
_FACTS = {
    "compute_capability": CAPABILITY,
    "tensorrt": _VERSION,
    "gpu": re.compile(r"^(true|false)\Z"),
    "engine_cache": re.compile(r"^/[^\0]*\Z"),
}
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_EXAMPLE = '{"format": 1, "flavours": [{"name": "onnx+trt", "needs": {"gpu": true}}]}'


@dataclass(frozen=True, slots=True)
class Machine:
    """What is known of a replica's machine; what is empty is not known.

    `compute_capability` is the GPU's (`9.0`), `tensorrt` the version of TensorRT in the image
    (`10.13.2`). `engine_cache` is a folder there in which TensorRT engines that ONNX Runtime has
    built are kept from one start to the next.
    """

    compute_capability: str = ""
    tensorrt: str = ""
    gpu: bool = False
    engine_cache: str = ""

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> "Machine":
        """A machine of which these facts were told; `Invalid` for one that cannot be."""
        for name, value in facts.items():
            if name not in _FACTS or not _FACTS[name].match(value):
                raise Invalid(
                    f"'{name}={value}' is not a machine fact",
                    why=f"the known facts are {', '.join(_FACTS)}",
                    try_this="compute_capability=9.0, tensorrt=10.13.2, gpu=true, engine_cache=/…",
                )
        capability = facts.get("compute_capability", "")
        has_gpu = facts.get("gpu", "true" if capability else "false") == "true"
        return cls(capability, facts.get("tensorrt", ""), has_gpu, facts.get("engine_cache", ""))


UNKNOWN = Machine()


@dataclass(frozen=True, slots=True)
class Needs:
    """What a machine must have; of several values one is enough, and no value is no need."""

    gpu: bool = False
    compute_capability: tuple[str, ...] = ()
    tensorrt: tuple[str, ...] = ()

    def lacking(self, machine: Machine) -> str:
        """What of it a machine does not have, in words; empty when it can run the flavour."""
        if self.gpu and not machine.gpu:
            return "it needs a GPU (found: none)"
        capability, known = machine.compute_capability, self.compute_capability
        if known and not any(capability and reaches(capability, one) for one in known):
            return f"it needs compute capability {_either(known)} (found: {capability or 'none'})"
        if self.tensorrt and not any(agree(machine.tensorrt, one) for one in self.tensorrt):
            found = machine.tensorrt or "none"
            return f"it needs TensorRT {_either(self.tensorrt)} (found: {found})"
        return ""


def agree(version: str, other: str) -> bool:
    """Whether two versions of TensorRT are the same as far as both are told; empty is neither."""
    pairs = zip(version.split("."), other.split("."), strict=False)
    return bool(version and other) and all(one == another for one, another in pairs)


def reaches(capability: str, needed: str) -> bool:
    """Whether a compute capability is the one that is needed, or with `+` a later one."""
    if not needed.endswith("+") or not CAPABILITY.match(capability):
        return capability == needed
    major, minor = map(int, capability.split("."))
    least, lesser = map(int, needed[:-1].split("."))
    return (major, minor) >= (least, lesser)


@dataclass(frozen=True, slots=True)
class Flavour:
    """One further form of a version.

    `file` is the model file below the version folder and `backend` what opens it; empty as in
    config.pbtxt. `config` are fields of `ModelConfig` (JSON, names as in the protobuf) that take
    the place of those of config.pbtxt, see `serve/triton/flavoured.py`.
    """

    name: str
    needs: Needs = field(default_factory=Needs)
    file: str = ""
    backend: str = ""
    config: Mapping[str, Any] = field(default_factory=lambda: _NOTHING)

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; what is empty is left out."""
        needs = {
            "gpu": self.needs.gpu,
            "compute_capability": list(self.needs.compute_capability),
            "tensorrt": list(self.needs.tensorrt),
        }
        page = {
            "file": self.file,
            "backend": self.backend,
            "needs": {key: value for key, value in needs.items() if value},
            "config": dict(self.config),
        }
        return {"name": self.name, **{key: value for key, value in page.items() if value}}


@dataclass(frozen=True, slots=True)
class VersionFlavours:
    """The further forms of a version, the preferred first. `base`: config.pbtxt is the last."""

    preferred: tuple[Flavour, ...] = ()
    base: bool = True

    @property
    def candidates(self) -> tuple[Flavour, ...]:
        """All forms in the order in which they are tried, the base included."""
        return (*self.preferred, Flavour(BASE)) if self.base else self.preferred

    @classmethod
    def parse(cls, text: str) -> "VersionFlavours":
        """Read flavours.json; none for an empty text, `Invalid` says what is wrong with another."""
        if not text:
            return cls()
        try:
            page = json.loads(text)
            json.dumps(page, allow_nan=False, ensure_ascii=False).encode()  # half a surrogate
        except (ValueError, RecursionError) as error:
            raise _wrong(f"it is not JSON: {error}") from error
        fields = _object(
            page, FLAVOURS, ("format", "base", "flavours"), needed=("format", "flavours")
        )
        if fields["format"] != FORMAT or isinstance(fields["format"], bool):
            raise _wrong(f"this version of Servegate cannot read format {fields['format']!r:.40}")
        listed = fields["flavours"]
        if not isinstance(listed, list) or not 0 < len(listed) <= _MOST:
            raise _wrong(f"'flavours' must be a list of 1 to {_MOST} items")
        preferred = tuple(_flavour(item, at) for at, item in enumerate(listed))
        names = [one.name for one in preferred]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise _wrong(f"'{twice[0]}' is listed twice")
        return cls(preferred, _typed(fields.get("base", True), bool, "base"))

    def text(self) -> str:
        """The one spelling of the same: equal flavours are equal texts; empty for none."""
        if not self.preferred:
            return ""
        page = {
            "format": FORMAT,
            "base": self.base,
            "flavours": [one.to_json() for one in self.preferred],
        }
        return json.dumps(page, sort_keys=True)


def _flavour(item: Any, at: int) -> Flavour:
    where = f"flavours[{at}]"
    known = ("name", "file", "backend", "needs", "config")
    fields = _object(item, where, known, needed=("name",))
    name = _typed(fields["name"], str, f"{where}.name")
    if not _NAME.match(name) or name == BASE:
        raise _wrong(
            f"'{name[:80]}' is not a valid name: use up to 63 lower-case letters, digits, '.', "
            f"'_', '+' and '-'; '{BASE}' is reserved"
        )
    file = _typed(fields.get("file", ""), str, f"{where}.file")
    if file and not all(_PART.match(part) for part in file.split("/")):
        raise _wrong(f"'{file[:200]}' in '{where}.file' is not a path in the version folder")
    config = _typed(fields.get("config", {}), dict, f"{where}.config")
    return Flavour(
        name,
        _needs(fields.get("needs", {}), f"{where}.needs"),
        file,
        _typed(fields.get("backend", ""), str, f"{where}.backend"),
        MappingProxyType(config),
    )


def _needs(item: Any, where: str) -> Needs:
    fields = _object(item, where, ("gpu", "compute_capability", "tensorrt"))
    return Needs(
        _typed(fields.get("gpu", False), bool, f"{where}.gpu"),
        _words(fields, "compute_capability", _CAPABILITY_NEEDED, where),
        _words(fields, "tensorrt", _VERSION, where),
    )


def _words(
    fields: Mapping[str, Any], name: str, pattern: re.Pattern[str], where: str
) -> tuple[str, ...]:
    words: Sequence[Any] = _typed(fields.get(name, []), list, f"{where}.{name}")
    for word in words:
        if not isinstance(word, str) or not pattern.match(word):
            raise _wrong(f"{word!r:.80} in '{where}.{name}' is not a version such as '9.0'")
    return tuple(words)


def _object(
    item: Any, where: str, known: Sequence[str], needed: Sequence[str] = ()
) -> Mapping[str, Any]:
    fields: Mapping[str, Any] = _typed(item, dict, where)
    unknown = sorted(fields.keys() - set(known))
    if unknown:
        raise _wrong(f"'{where}' has no field '{unknown[0][:80]}', only {', '.join(known)}")
    for name in needed:
        if name not in fields:
            raise _wrong(f"'{where}' has no '{name}'")
    return fields


def _typed(value: Any, kind: type, where: str) -> Any:
    words = {str: "a string", bool: "true or false", list: "a list", dict: "an object"}
    if not isinstance(value, kind):
        raise _wrong(f"'{where}' must be {words[kind]}")
    return value


def _wrong(why: str) -> Invalid:
    return Invalid(f"{FLAVOURS} cannot be read", why=why, try_this=_EXAMPLE)


def _either(words: Sequence[str]) -> str:
    return " or ".join(words)
