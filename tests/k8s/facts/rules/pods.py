"""Pods: images, users, rights, how long they may take to end; and Triton's flags."""

import re
from collections.abc import Iterator
from itertools import product

from k8s.facts.manifests import dig, items, label_of, mapping, name_of
from k8s.facts.workloads import CONVERTER, TRITON, Pod
from k8s.facts.world import OURS, World, is_triton, rule

_COMPONENTS = {"proxy": "gateway", "control": "control", "load run": "load"}
_MARGIN = 2  # seconds that processes of ours need to end, beyond their calls: app/proxy.py
_IMAGES = re.compile(r"(?P<name>[^:@]+)(?::(?P<tag>[\w.-]+))?(?:@sha256:[0-9a-f]{64})?$")


@rule
def images_are_built(world: World) -> Iterator[str]:
    """An image is one of ours, which a container file makes, or Triton, everywhere the same."""
    for one in world.containers:
        found = _IMAGES.match(str(one.body.get("image", "")))
        if found is None:
            yield f"{one} has no image"
            continue
        name, tag = found["name"], found["tag"] or ""
        if one.image in OURS and world.manifests.named("Image", one.image) is None:
            yield f"{one} runs {name}, and no container file makes it"
        if one.image not in (*OURS, TRITON):
            yield f"{one} runs {name}, which is not ours and not Triton"
        if one.image == TRITON and name != world.program.find("word", "triton image"):
            yield f"{one} runs {name}, and the documents name another Triton"
        wanted = world.program.find("word", f"tag of {one.image}")
        if tag != wanted:
            yield f"{one} runs {name}:{tag}, and {wanted} is the tag of all"


@rule
def images_start_the_program(world: World) -> Iterator[str]:
    """A container file starts our command, as the user that pods run as, with extras that exist."""
    user = world.program.find("word", "user")
    program = world.program.find("word", "entry point")
    for image in world.manifests.of("Image"):
        where, exposed = label_of(image), image.get("expose") or []
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
        heard = {port.number for port in world.program.facts["port"].values()}
        for port in set(exposed) - heard:
            yield f"{where} exposes {port}, on which no plane listens"


@rule
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


@rule
def pods_have_our_labels(world: World) -> Iterator[str]:
    key, part = "app.kubernetes.io/name", "app.kubernetes.io/component"
    for pod in world.pods:
        wanted = world.program.find("word", key)
        if pod.labels.get(key) != wanted:
            yield f"{pod.where} is {key}={pod.labels.get(key)}, and ours are {wanted}"
        component = _component(world, pod)
        if component and pod.labels.get(part) != component:
            yield f"{pod.where} is {part}={pod.labels.get(part)}, and runs as {component}"


@rule
def pods_may_nothing(world: World) -> Iterator[str]:
    """Pods and containers are as `core/pods.py` has them."""
    for pod in world.pods:
        if pod.spec.get("enableServiceLinks") is not False:
            yield f"{pod.where} gets every Service as variables"
        places = [(pod.where, pod.spec, "pod security")]
        places += [(str(one), one.body, "container security") for one in pod.containers]
        for where, spec, word in places:
            held = mapping(spec.get("securityContext"))
            for key, value in world.program.facts["word"][word].items():
                if held.get(key) != value:
                    yield f"{where} securityContext.{key} is {held.get(key)}, and not {value}"


@rule
def triton_knows_its_flags(world: World) -> Iterator[str]:
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


@rule
def there_is_time_to_end(world: World) -> Iterator[str]:
    """A pod is killed only after its calls could end: preStop, drain, and what ends after it."""
    servers = [one for one in world.ours("proxy", "control") if one.pod.kind != "Job"]
    for one in (*servers, *world.tritons()):
        wait = dig(one.body, "lifecycle.preStop.sleep.seconds")
        if not isinstance(wait, int) or wait < 1:
            yield f"{one} does not wait in preStop: calls still come when it stops"
            continue
        grace = one.pod.spec.get("terminationGracePeriodSeconds", 30)
        if one.image == TRITON:
            given = one.flag("--exit-timeout-secs") or "30"
            ends: float = int(given) if given.isdigit() else 0
        else:
            settings = world.settings(one)
            is_control = world.command(one) == "control"
            ends = _MARGIN if settings is None or is_control else settings.drain_timeout + _MARGIN
        if not isinstance(grace, int) or grace < wait + ends:
            yield f"{one} ends after {wait} + {ends} s at the latest, and is killed after {grace} s"


def _component(world: World, pod: Pod) -> str:
    if any(map(is_triton, pod.containers)):
        return "triton"
    if any(one.image in (CONVERTER, TRITON) for one in pod.containers):
        return "conversion"
    return next((c for one in pod.containers if (c := _COMPONENTS.get(world.command(one)))), "")


@rule
def rights_are_those_of_discovery(world: World) -> Iterator[str]:
    """Control may do what discovery asks, no more; nobody else has a right or a token."""
    asked = {
        tuple(name.split()): world.program.find("asks", name)
        for name in world.program.names("asks")
    }
    given: set[tuple[str, str]] = set()
    for role in world.manifests.of("Role", "ClusterRole"):
        for one in items(role.get("rules")):
            for verb, resource in product(one.get("verbs") or (), one.get("resources") or ()):
                given.add((verb, resource))
                if one.get("apiGroups") != [asked.get((verb, resource))]:
                    yield f"{label_of(role)} allows {verb} {resource}, which nobody asks"
    for verb, resource in asked.keys() - given:
        if list(world.ours("control")):
            yield f"no Role allows {verb} {resource}, which discovery asks"
    yield from _bound(world)


def _bound(world: World) -> Iterator[str]:
    owners = {str(one.pod.spec.get("serviceAccountName")): one.pod for one in world.ours("control")}
    for one in world.manifests.of("RoleBinding", "ClusterRoleBinding"):
        where, role = label_of(one), mapping(one.get("roleRef"))
        if world.manifests.named(str(role.get("kind")), str(role.get("name"))) is None:
            yield f"{where} gives {role.get('kind')}/{role.get('name')}, which is not there"
        if role.get("apiGroup") != "rbac.authorization.k8s.io":
            yield f"{where} gives a role of {role.get('apiGroup')}"
        for subject in items(one.get("subjects")):
            account = subject.get("name")
            if subject.get("kind") != "ServiceAccount" or account not in owners:
                yield f"{where} is for {subject.get('kind')}/{account}, which control is not"
            elif subject.get("namespace") != owners[account].namespace:
                yield f"{where} is for an account of {subject.get('namespace')}"
        if not items(one.get("subjects")):
            yield f"{where} is for nobody"
    for pod in world.pods:
        account = pod.spec.get("serviceAccountName")
        if account is None and pod.kind != "Job":
            yield f"{pod.where} runs as the account that everybody has"
        if account and world.manifests.named("ServiceAccount", str(account)) is None:
            yield f"{pod.where} runs as {account}, which is not there"
        is_control = any(world.command(c) == "control" for c in pod.containers)
        own = world.manifests.named("ServiceAccount", str(account)) or {}
        usual = own.get("automountServiceAccountToken", True)
        if pod.spec.get("automountServiceAccountToken", usual) is not is_control:
            yield f"{pod.where} {'lacks its token' if is_control else 'has a token'}"
    for account in world.manifests.of("ServiceAccount"):
        if account.get("automountServiceAccountToken", True) is not False:
            yield f"ServiceAccount/{name_of(account)} gives a token to every pod"
