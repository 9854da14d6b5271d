"""Rights: what the Kubernetes API lets our pods do is what discovery asks, and no more."""

from collections.abc import Iterator

from k8s.facts.manifests import items, mapping, name_of
from k8s.facts.world import World


def rights_are_those_of_discovery(world: World) -> Iterator[str]:
    """Control may do what discovery asks, no more; nobody else has a right or a token."""
    asked = {
        tuple(name.split()): world.program.find("asks", name)
        for name in world.program.names("asks")
    }
    given: set[tuple[str, str]] = set()
    for role in world.manifests.of("Role", "ClusterRole"):
        where = f"{role['kind']}/{name_of(role)}"
        for rule in items(role.get("rules")):
            groups, verbs = rule.get("apiGroups") or [], rule.get("verbs") or []
            for resource in rule.get("resources") or []:
                for verb in verbs:
                    given.add((verb, resource))
                    if asked.get((verb, resource)) not in groups:
                        yield f"{where} allows {verb} {resource}, which the program never asks"
            if len(groups) != 1:
                yield f"{where} is for the groups {groups}"
    for verb, resource in asked.keys() - given:
        if list(world.ours("control")):
            yield f"no Role allows {verb} {resource}, which discovery asks"
    yield from _bound(world)


def _bound(world: World) -> Iterator[str]:
    owners = {str(one.pod.spec.get("serviceAccountName")): one.pod for one in world.ours("control")}
    for one in world.manifests.of("RoleBinding", "ClusterRoleBinding"):
        where = f"{one['kind']}/{name_of(one)}"
        role = mapping(one.get("roleRef"))
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


RULES = (rights_are_those_of_discovery,)
