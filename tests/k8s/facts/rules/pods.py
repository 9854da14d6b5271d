"""Pods: images, users, what they may, how long they may take to end; and Triton's flags."""

import re
from collections.abc import Iterator
from typing import Any

from k8s.facts.manifests import dig, mapping, name_of
from k8s.facts.workloads import CONVERTER, TRITON, Pod
from k8s.facts.world import OURS, World

_COMPONENTS = {"proxy": "gateway", "control": "control", "load run": "load"}
_MARGIN = 2  # seconds that processes of ours need to end, beyond their calls: app/proxy.py
_IMAGES = re.compile(r"(?P<name>[^:@]+)(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]{64})?$")


def images_are_built(world: World) -> Iterator[str]:
    """An image is one of ours, which a container file makes, or Triton, everywhere the same."""
    tags: dict[str, set[str]] = {}
    for one in world.containers:
        found = _IMAGES.match(str(one.body.get("image", "")))
        if found is None:
            yield f"{one} has no image"
            continue
        name, tag = found["name"], found["tag"] or ""
        tags.setdefault(one.image, set()).add(tag)
        if one.image in OURS and world.manifests.named("Image", one.image) is None:
            yield f"{one} runs {name}, and no container file makes it"
        if one.image not in (*OURS, TRITON):
            yield f"{one} runs {name}, which is not ours and not Triton"
        if one.image == TRITON and name != world.program.find("word", "triton image"):
            yield f"{one} runs {name}, and the documents name another Triton"
        wanted = world.program.find("word", f"tag of {one.image}")
        if tag != wanted:
            yield f"{one} runs {name}:{tag}, and {wanted} is the tag of all"
    for name, found_tags in tags.items():
        if len(found_tags) > 1:
            yield f"{name} has the tags {', '.join(sorted(found_tags))} in one cluster"


def images_start_the_program(world: World) -> Iterator[str]:
    """A container file starts our command, as the user that pods run as, with extras that exist."""
    user = world.program.find("word", "user")
    program = world.program.find("word", "entry point")
    for image in world.manifests.of("Image"):
        where = f"Image/{name_of(image)}"
        base = world.manifests.named("Image", str(image.get("from")))
        if image.get("entrypoint", base and base.get("entrypoint")) != [program]:
            yield f"{where} starts {image.get('entrypoint')}, and the package brings {program}"
        if str(image.get("user")) != f"{user}:{user}":
            yield f"{where} runs as {image.get('user')}, and pods as {user}"
        if not image.get("extras"):
            yield f"{where} installs no extra"
        for extra in image.get("extras") or ():
            if world.program.find("extra", extra) is None:
                yield f"{where} installs the extra {extra}, which the package does not have"
        exposed = image.get("expose") or []
        if len(set(exposed)) < len(exposed):
            yield f"{where} exposes one port twice: {exposed}"
        for port in exposed:
            if port not in {p.number for p in _ports(world)}:
                yield f"{where} exposes {port}, on which no plane listens"


def images_have_what_runs(world: World) -> Iterator[str]:
    """PostgreSQL, load tests and conversions need extras; the image of a container has them."""
    for one in world.ours():
        image = world.image(one)
        base = world.manifests.named("Image", str(image.get("from"))) or {}
        extras = {*(image.get("extras") or ()), *(base.get("extras") or ())}
        command = world.command(one)
        needed = {
            "postgres": "SERVEGATE_DATABASE" in one.variables,
            "load": command.startswith("load "),
            "convert": command.startswith("convert") and command.endswith(("run", "verify")),
        }
        for extra, is_needed in needed.items():
            if is_needed and extra not in extras:
                yield f"{one} needs the extra {extra}, which image {one.image} lacks"


def pods_have_our_labels(world: World) -> Iterator[str]:
    """Pods of ours say so, and what they are."""
    key, part = "app.kubernetes.io/name", "app.kubernetes.io/component"
    for pod in world.pods:
        wanted = world.program.find("word", key)
        if pod.labels.get(key) != wanted:
            yield f"{pod.where} is {key}={pod.labels.get(key)}, and ours are {wanted}"
        component = _component(world, pod)
        if component and pod.labels.get(part) != component:
            yield f"{pod.where} is {part}={pod.labels.get(part)}, and runs as {component}"
        if world.program.find("word", part) is None:
            yield f"{pod.where} has {part}, by which the program finds nothing"


def pods_may_nothing(world: World) -> Iterator[str]:
    """Pods and containers are as `core/pods.py` has them."""
    wanted_pod = world.program.find("word", "pod security")
    wanted = world.program.find("word", "container security")
    if not wanted_pod or not wanted:
        yield "the program does not say what its pods may"
        return
    for pod in world.pods:
        held = mapping(pod.spec.get("securityContext"))
        for key, value in wanted_pod.items():
            if held.get(key) != value:
                yield f"{pod.where} securityContext.{key} is {held.get(key)}, and not {value}"
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.where} gets every Service as variables"
        for one in pod.containers:
            own = mapping(one.body.get("securityContext"))
            for key, value in wanted.items():
                if own.get(key) != value:
                    yield f"{one} securityContext.{key} is {own.get(key)}, and not {value}"


def triton_knows_its_flags(world: World) -> Iterator[str]:
    """Triton has the flags, and values of the kind that they take."""
    for one in world.tritons():
        if one.body.get("args", [""])[0] != TRITON and not one.body.get("command"):
            yield f"{one} starts {one.body['args'][0]}, and the image brings {TRITON}"
        for flag, value in one.flags:
            kind = world.program.find("triton flag", flag)
            if value not in _CHOICES.get(flag, (value,)):
                yield f"{one} has {flag}={value}, and one of {_CHOICES[flag]} is needed"
            if kind is None:
                yield f"{one} has {flag}, which Triton does not know"
            elif kind == "integer" and not re.fullmatch(r"-?\d+", value):
                yield f"{one} has {flag}={value}, and an integer is needed"
            elif kind == "boolean" and value not in ("true", "false"):
                yield f"{one} has {flag}={value}, and true or false is needed"
        for flag, value in _GUARDS.items():
            if one.flag(flag) != value:
                yield f"{one} has {flag}={one.flag(flag)}: {value} is needed"


_CHOICES = {"--model-control-mode": ("none", "poll", "explicit")}
# What must be said because Triton does otherwise by itself, or ends too late.
_GUARDS = {
    "--allow-sagemaker": "false",
    "--allow-vertex-ai": "false",
    "--allow-client-shm": "false",
    "--strict-readiness": "false",  # one model that fails must not take the pod away
    "--exit-on-error": "false",
}


def there_is_time_to_end(world: World) -> Iterator[str]:
    """A pod is killed only after its calls could end: preStop, drain, and what ends after it."""
    for one in (*world.ours("proxy", "control"), *world.tritons()):
        if one.pod.kind in ("Job", "CronJob"):
            continue
        wait = dig(one.body, "lifecycle.preStop.sleep.seconds")
        if not isinstance(wait, int) or wait < 1:
            yield f"{one} does not wait in preStop: calls still come when it stops"
            continue
        grace = one.pod.spec.get("terminationGracePeriodSeconds", 30)
        if one.image == TRITON:
            given = one.flag("--exit-timeout-secs") or "30"
            ends = int(given) if given.isdigit() else 0
        else:
            settings = world.settings(one)
            ends = 0 if isinstance(settings, str) else settings.drain_timeout + _MARGIN
            if world.command(one) == "control":
                ends = _MARGIN
        if not isinstance(grace, int) or grace < wait + ends:
            yield f"{one} ends after {wait} + {ends} s at the latest, and is killed after {grace} s"


def _ports(world: World) -> Iterator[Any]:
    for name in world.program.names("port"):
        yield world.program.find("port", name)


def _component(world: World, pod: Pod) -> str:
    if any(one in tuple(world.tritons()) for one in pod.containers):
        return "triton"
    if any(one.image in (CONVERTER, TRITON) for one in pod.containers):
        return "conversion"
    return next((c for one in pod.containers if (c := _COMPONENTS.get(world.command(one)))), "")


RULES = (
    images_are_built,
    images_start_the_program,
    images_have_what_runs,
    pods_have_our_labels,
    pods_may_nothing,
    triton_knows_its_flags,
    there_is_time_to_end,
)
