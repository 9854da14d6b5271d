"""Manifests and program side by side, as the rules look at them.

A rule is a function that takes this and gives the sentences of what does not fit: object, path,
value, and what the program has.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from k8s.facts.manifests import Manifests, Object, dig, each, items, label_of, mapping, name_of
from k8s.facts.program import Program
from k8s.facts.workloads import CONVERTER, TRITON, Container, Pod, pods_of

from serve.core.errors import ServegateError
from serve.settings import PREFIX, Explained, Settings, load

OURS = ("servegate", "servegate-load", CONVERTER)
SERVES = ("Deployment", "ServingRuntime")
_OF_GATEWAY = "gateway.networking.k8s.io/gateway-name"  # the Gateway API adds it
_NOWHERE = Path("/nonexistent")
_LISTS = {row.name for row in fields(Settings) if isinstance(row.default, tuple)}


@dataclass(frozen=True)
class World:
    manifests: Manifests
    program: Program

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        return pods_of(self.manifests)

    @cached_property
    def everybody(self) -> tuple[Pod, ...]:
        """All pods, and those that somebody else makes for our Gateways."""
        rims = tuple(
            Pod(label_of(one), "Gateway", "", {_OF_GATEWAY: name_of(one)}, {})
            for one in self.manifests.of("Gateway")
        )
        return (*self.pods, *rims)

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        return tuple(one for pod in self.pods for one in pod.containers)

    @cached_property
    def services(self) -> tuple[Object, ...]:
        return tuple(self.manifests.of("Service"))

    @cached_property
    def triggers(self) -> tuple[Object, ...]:
        scaled = self.manifests.of("ScaledObject")
        return tuple(trigger for one in scaled for trigger in each(one, "spec.triggers"))

    def ours(self, *commands: str) -> Iterator[Container]:
        """Containers of our images; with commands, those that run one of them."""
        for one in self.containers:
            if one.image in OURS and (not commands or self.command(one) in commands):
                yield one

    def tritons(self) -> Iterator[Container]:
        return filter(is_triton, self.containers)

    def command(self, container: Container) -> str:
        """The command that a container of ours runs; empty where there is none of that name."""
        words = container.command.split()
        for count in range(len(words), 0, -1):
            if self.program.find("command", name := " ".join(words[:count])) is not None:
                return name
        return ""

    def image(self, container: Container) -> Object:
        """The container file of its image; empty where we have none."""
        return self.manifests.named("Image", container.image) or {}

    def variables(self, container: Container) -> dict[str, str]:
        """What a container's environment holds, with what the image sets."""
        own = {name: one.value for name, one in container.variables.items()}
        image = self.image(container)
        base = self.manifests.named("Image", str(image.get("from"))) or {}
        return {**mapping(base.get("env")), **mapping(image.get("env")), **own}

    @cached_property
    def _read(self) -> dict[str, Explained | str]:
        return {}

    def explained(self, container: Container) -> Explained | str:
        """What a plane's settings come to, by the program's own reading; or what it objects to."""
        if str(container) not in self._read:
            self._read[str(container)] = self._explain(container)
        return self._read[str(container)]

    def _explain(self, container: Container) -> Explained | str:
        flags: dict[str, Any] = {}
        for flag, value in container.flags:
            name = flag.removeprefix("--").replace("-", "_")
            value = container.expanded(value)
            if name in _LISTS:
                flags.setdefault(name, []).append(value)
            else:
                flags[name] = value or "true"
        known = {
            name: container.expanded(value)
            for name, value in self.variables(container).items()
            if name.startswith(PREFIX) and self.program.find("variable", name) is not None
        }
        try:
            return load(flags, known, _NOWHERE)
        except ServegateError as error:
            return str(error)

    def settings(self, container: Container) -> Settings | None:
        """The same without the places that the values come from; None where it objects."""
        found = self.explained(container)
        return None if isinstance(found, str) else found.settings

    def selected(self, service: Object) -> tuple[Pod, ...]:
        selector = mapping(dig(service, "spec.selector"))
        return tuple(pod for pod in self.pods if selector and pod.matches(selector))

    def service(self, name: str) -> Object | None:
        return next((one for one in self.services if name_of(one) == name), None)

    def port_of(self, service: Object, port: object) -> Mapping[str, Any] | None:
        """The entry of a Service's port, by name or number."""
        for one in items(dig(service, "spec.ports")):
            if port in (one.get("name"), one.get("port")):
                return one
        return None


def is_triton(one: Container) -> bool:
    return one.image == TRITON and one.pod.kind in SERVES


Rule = Callable[[World], Iterable[str]]
RULES: list[Rule] = []


def rule(check: Rule) -> Rule:
    RULES.append(check)
    return check
