"""Files: Secrets where settings look, volumes where somebody writes, models where Triton reads."""

from collections.abc import Iterator, Mapping
from typing import Any

from k8s.facts.manifests import dig, items, mapping
from k8s.facts.workloads import Container
from k8s.facts.world import OURS, World, is_triton, rule

from serve.triton.repository_url import triton_url

_TLS_ENTRIES = ("tls.crt", "tls.key", "ca.crt")  # what cert-manager writes
_BROUGHT = "/mnt/models"  # DefaultModelLocalMountPath of KServe
_FILES = (
    "SERVEGATE_TLS_CERT",
    "SERVEGATE_TLS_KEY",
    "SERVEGATE_TLS_CLIENT_CA",
    "SERVEGATE_CACERT",
    "SERVEGATE_CLIENT_CERT",
    "SERVEGATE_CLIENT_KEY",
    "SERVEGATE_KEY_FILE",
    "--key-file",
    "SSL_CERT_FILE",
)
_WRITTEN = ("SERVEGATE_STATE", "HOME", "TMPDIR")


@rule
def files_are_mounted(world: World) -> Iterator[str]:
    """A file that is named is an entry of a mounted Secret; what is written to is a volume."""
    for one in world.containers:
        variables = world.variables(one) if one.image in OURS else _own(one)
        given = {name: path for name, path in variables.items() if _is_used(world, one, name)}
        given |= {"--key-file": one.flag("--key-file") or ""}
        for name in (*_FILES, *_WRITTEN):
            path = given.get(name)
            if path and name in _FILES and not _is_entry(world, one, path):
                yield f"{one} {name} {path}, which no mounted Secret holds"
            if path and name in _WRITTEN and not _is_writable(one, path):
                yield f"{one} writes to {name}={path}, which is no volume that may be written"
        writes = is_triton(one) or world.command(one) in ("proxy", "control")
        if writes and not _is_writable(one, "/tmp"):  # where Triton copies models
            yield f"{one} may not write to /tmp"
        for mount in one.mounts:
            kept = one.pod.volume(str(mount.get("name")))
            if dig(kept, "emptyDir.medium") == "Memory" and mount.get("mountPath") != "/dev/shm":
                yield f"{one} has memory at {mount.get('mountPath')}, and not at /dev/shm"
            where = str(mount.get("mountPath"))
            named = (*variables.values(), *(value for _, value in one.flags))
            if "secret" in kept and not any(path.startswith(f"{where}/") for path in named):
                yield f"{one} has a Secret at {where}, which nothing there reads"
            if not kept:
                yield f"{one} mounts {mount.get('name')}, which is no volume"


@rule
def models_meet(world: World) -> Iterator[str]:
    for one in world.tritons():
        repository = one.flag("--model-repository") or one.flag("--model-store")
        if repository is None:
            yield f"{one} has no model repository"
            continue
        repository = one.expanded(repository)
        if dig(one.pod.spec, "model.storageUri") and repository != _BROUGHT:
            yield f"{one} reads {repository}, and KServe brings models to {_BROUGHT}"
        volume = one.volume_of(repository)
        if volume is None and one.pod.kind != "ServingRuntime" and "://" not in repository:
            yield f"{one} reads {repository}, which is no volume"
        for agent in (c for c in one.pod.containers if world.command(c) == "sync"):
            folder = agent.flag("--folder") or ""
            kept = agent.volume_of(folder)
            same = kept and volume and kept.get("name") == volume.get("name")
            if not same or _below(kept, folder) != _below(volume, repository):
                yield f"{agent} keeps {folder}, and Triton reads {repository}: not the same folder"
            elif not _is_writable(agent, folder):
                yield f"{agent} keeps {folder}, which it may not write"
            source = agent.variables.get((agent.flag("--replica") or "").strip("$()"))
            if source is None or source.source != "field metadata.name":
                yield f"{agent} is for replica {agent.flag('--replica')}: the pod's name is needed"


@rule
def delivery_meets_agents(world: World) -> Iterator[str]:
    """`delivery` is `agents` exactly where agents run, and Triton is told what to load then."""
    agents = list(world.ours("sync"))
    for one in world.ours("control"):
        settings = world.settings(one)
        if settings is None:
            continue
        if (settings.delivery == "agents") != bool(agents):
            yield f"{one} delivers by '{settings.delivery}', and there are {len(agents)} agents"
        for triton in world.tritons():
            mode = triton.flag("--model-control-mode")
            loads = settings.publishes or bool(settings.model_repo)
            if (mode == "explicit") != loads:
                told = "loads models" if loads else "loads none"
                yield f"{triton} has model control '{mode}', and the control plane {told}"
            yield from _repository(world, one, triton, settings)
        if (
            settings.storage
            and "://" not in settings.storage
            and one.volume_of(settings.storage) is None
        ):
            yield f"{one} stores in {settings.storage}, which is neither a bucket nor a volume"
        if settings.model_repo and one.volume_of(settings.model_repo) is None:
            yield f"{one} reads models in {settings.model_repo}, which is no volume"


def _repository(world: World, one: Container, triton: Container, settings: Any) -> Iterator[str]:
    """Triton reads what is delivered: the bucket, or the volume of the folder."""
    read = triton.expanded(triton.flag("--model-repository") or "")
    if settings.delivery == "bucket":
        wanted = triton_url(settings.storage, world.variables(one))
        if read != wanted:
            yield f"{triton} reads {read}, and {one} delivers to {wanted}"
    elif settings.delivery == "folder" and settings.delivery_folder:
        kept, held = one.volume_of(settings.delivery_folder), triton.volume_of(read)
        claim = "persistentVolumeClaim.claimName"
        if not kept or not held or dig(kept, claim) != dig(held, claim):
            yield f"{triton} reads {read}, and {one} delivers to {settings.delivery_folder}"


def _own(one: Container) -> dict[str, str]:
    return {name: variable.value for name, variable in one.variables.items()}


def _is_used(world: World, one: Container, name: str) -> bool:
    """A listener's files are the planes' alone; an agent reads no state once it has the secret."""
    command = world.command(one)
    if name.startswith("SERVEGATE_TLS") or name == "SERVEGATE_STATE":
        return command in ("proxy", "control")
    if name in _WRITTEN:
        return name in one.variables
    return True


def _is_entry(world: World, one: Container, path: str) -> bool:
    volume = one.volume_of(path)
    if volume is None:
        return False
    secret = mapping(volume.get("secret"))
    rest = path.removeprefix(volume["mountPath"]).strip("/")
    chosen = items(secret.get("items"))
    name = str(secret.get("secretName"))
    made = {str(dig(one, "spec.secretName")) for one in world.manifests.of("Certificate")}
    known = world.program.facts.get("entry", {})
    own = [entry for entry in known if entry.startswith(f"{name} ")]
    entries = _TLS_ENTRIES if name in made else own
    held = {entry.rpartition(" ")[2] for entry in entries}
    if chosen:
        return any(each.get("path") == rest and each.get("key") in held for each in chosen)
    return rest in held


def _is_writable(one: Container, path: str) -> bool:
    volume = one.volume_of(path) or {}
    mount = next((m for m in one.mounts if m.get("name") == volume.get("name")), {})
    kinds = {"emptyDir", "persistentVolumeClaim", "ephemeral", "hostPath"}
    return bool(volume.keys() & kinds) and not mount.get("readOnly")


def _below(volume: Mapping[str, Any] | None, path: str) -> str:
    return path.removeprefix(volume["mountPath"]).strip("/") if volume else "?"
