"""Commands, flags, variables and what the settings come to."""

import asyncio
import re
from collections.abc import Iterator

from k8s.facts.manifests import dig, each, mapping, name_of
from k8s.facts.workloads import Container
from k8s.facts.world import World, rule

from serve.app.addresses import require_safe_addresses
from serve.core.errors import ServegateError
from serve.settings import PREFIX, Settings

PLANES = ("proxy", "control")
# Variables that are not ours: who reads them.
OTHERS = {
    "HOME": "Python, and whoever writes into a home folder",
    "TMPDIR": "Python's tempfile",
    "PATH": "the kernel",
    "PYTHONUNBUFFERED": "Python",
    "PYTHONDONTWRITEBYTECODE": "Python",
    "OMP_NUM_THREADS": "ONNX Runtime, NumPy",
    "IMAGE": "serve/workbench/conversion/plans/onsite.py",
    "CUDA_VISIBLE_DEVICES": "CUDA",
    "NVIDIA_VISIBLE_DEVICES": "NVIDIA's container runtime",
    "NVIDIA_DRIVER_CAPABILITIES": "NVIDIA's container runtime",
    "ORT_DISABLE_TELEMETRY": "ONNX Runtime",
    "SSL_CERT_FILE": "OpenSSL",
    "SSL_CERT_DIR": "OpenSSL",
}


@rule
def commands_exist(world: World) -> Iterator[str]:
    """Every container of ours runs a command of the program, with flags that it has."""
    for one in world.ours():
        name = world.command(one)
        if not name:
            yield f"{one} runs '{' '.join(one.words)}', and there is no such command"
            continue
        given = dict(one.flags)
        for flag, value in one.flags:
            takes = world.program.find("flag", f"{name} {flag}")
            if takes is None:
                yield f"{one} has {flag}, which `servegate {name}` does not know"
            elif (takes == "a value") != bool(value):
                yield f"{one} has {flag} with '{value}', which takes {takes}"
        for flag in world.program.find("command", name) - given.keys():
            yield f"{one} lacks {flag}, without which `servegate {name}` does not start"


@rule
def variables_are_read(world: World) -> Iterator[str]:
    of_keda = {dig(trigger, "metadata.keyFromEnv") for trigger in world.triggers}
    for one in world.containers:
        text = " ".join((*one.words, *(each.value for each in one.variables.values())))
        for missing in one.missing:
            yield f"{one} takes variables of {missing}, which is not there"
        for name in one.variables:
            is_known = world.program.find("variable", name) is not None
            if not (is_known or name in OTHERS or name in of_keda or f"$({name})" in text):
                yield f"{one} sets {name}, which nobody reads"
        for name in re.findall(r"\$\(([^)]*)", text):
            if name not in one.variables:
                yield f"{one} says $({name}), and there is no such variable"
    for image in world.manifests.of("Image"):
        for name in mapping(image.get("env")):
            if world.program.find("variable", name) is None and name not in OTHERS:
                yield f"Image/{name_of(image)} sets {name}, which nobody reads"


@rule
def config_maps_are_variables(world: World) -> Iterator[str]:
    taken = {
        str(dig(source, "configMapRef.name"))
        for one in world.containers
        for source in one.body.get("envFrom") or ()
    }
    for one in world.manifests.of("ConfigMap"):
        data = mapping(one.get("data"))
        if any(key.startswith(PREFIX) for key in data) and name_of(one) not in taken:
            yield f"ConfigMap/{name_of(one)} holds settings, and no container takes it"
        for key in data if name_of(one) in taken else ():
            if world.program.find("variable", key) is None:
                yield f"ConfigMap/{name_of(one)} data.{key} is no variable of the program"


@rule
def settings_are_taken(world: World) -> Iterator[str]:
    """The program takes the settings, and would open the ports that they say."""
    for one in world.ours(*PLANES):
        settings = world.settings(one)
        if settings is None:
            yield f"{one}: {world.explained(one)}"
            continue
        plane = world.command(one)
        try:
            asyncio.run(_would_open(settings, plane))
        except ServegateError as error:
            yield f"{one}: {error}"
        if bool(settings.tls_cert) != bool(settings.tls_key):
            yield f"{one} has half of a certificate and its key"
        if settings.insecure and settings.auth != "keys":
            yield f"{one} is insecure with auth {settings.auth}: whoever reaches it could use it"
        host, needed = ("host", _PROXY) if plane == "proxy" else ("admin_host", _CONTROL)
        if getattr(settings, host) not in EVERYWHERE:
            yield f"{one} listens on {getattr(settings, host)}: Services and probes reach no such"
        for name in needed:
            if not getattr(settings, name):
                yield f"{one} lacks {PREFIX}{name.upper()}, which a plane on Kubernetes needs"
        if plane == "control" and not _is_kept(settings, one):
            yield f"{one} keeps its store or its versions where they go with the pod"


EVERYWHERE = ("0.0.0.0", "::")  # a pod's address is not known before
_PROXY = ("control", "secret")
_CONTROL = ("gateway", "secret", "discover")


@rule
def secrets_are_told(world: World) -> Iterator[str]:
    for one in world.containers:
        for variable in one.variables.values():
            if variable.source.startswith("Secret/"):
                entry = variable.source.removeprefix("Secret/")
                if world.program.find("entry", entry) is None:
                    yield f"{one} takes {variable.name} of {variable.source}, which no page makes"
        for source in each(one.body, "envFrom"):
            if not dig(source, "configMapRef.name") and not dig(source, "secretRef.name"):
                yield f"{one} takes variables of nothing"
            if secret := dig(source, "secretRef.name"):
                entries = world.program.facts.get("entry", {})
                names = [name for name in entries if name.startswith(f"{secret} ")]
                if not names:
                    yield f"{one} takes variables of Secret/{secret}, which no page makes"
                for name in names:
                    if world.program.find("variable", name.partition(" ")[2]) is None:
                        yield f"{one} takes '{name}' as a variable, which nobody reads"


@rule
def secrets_become_settings(world: World) -> Iterator[str]:
    """Both planes and the agents share one entry as their secret, and control one database."""
    for setting in ("SECRET", "DATABASE"):
        name = PREFIX + setting
        sources = {one.variables[name].source: one for one in world.ours() if name in one.variables}
        if len(sources) > 1:
            yield f"{name} comes of {', '.join(sorted(sources))}: it is one"
        for source, one in sources.items():
            if not source.startswith("Secret/"):
                yield f"{one} has {name} in the open"


def _is_kept(settings: Settings, one: Container) -> bool:
    """Whether what is kept in the state folder outlives the pod, or nothing is kept there."""
    if settings.database and settings.storage:
        return True
    volume = one.volume_of(settings.state)
    return volume is not None and "persistentVolumeClaim" in volume


async def _would_open(settings: Settings, plane: str) -> None:
    is_proxy = plane == "proxy"
    await require_safe_addresses(settings, data=is_proxy, admin=not is_proxy, knows_keys=False)
