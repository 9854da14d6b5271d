"""Models read from a folder, or from replicas; what is wrong with one harms no other."""

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from builders import Clock, ControlPlane, replica, write_model

from serve.control.decisions import Decisions
from serve.control.fleet import Fleet
from serve.control.inventory import Inventory
from serve.control.registry import Registry
from serve.control.storage.store import StoredEntry
from serve.core.errors import Invalid, TritonFailed
from serve.triton import config as triton_config
from serve.triton.config import Configuration

ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [ { model_name: "one" }, { model_name: "two" } ] }
"""


def scanned(repository: Path) -> Registry:
    registry = Registry(repository)
    registry.scan()
    return registry


def test_every_folder_is_a_model_with_its_versions(tmp_path: Path) -> None:
    write_model(tmp_path, "digits", 2, 10, 1)
    write_model(tmp_path, "other", 3)
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / ".git").mkdir()
    models = scanned(tmp_path).models
    versions = {name: model.versions for name, model in models.items()}
    assert versions == {"digits": (1, 2, 10), "other": (3,)}


POLICIES = {
    "": (3,),
    "version_policy { latest { num_versions: 2 } }": (2, 3),
    "version_policy { all { } }": (1, 2, 3),
    "version_policy { specific { versions: [ 1, 3, 9 ] } }": (1, 3),
}


def test_the_version_policy_says_what_is_wanted(tmp_path: Path) -> None:
    for number, policy in enumerate(POLICIES):
        write_model(tmp_path, f"m{number}", 1, 2, 3, config=f'backend: "x" {policy}')
    write_model(tmp_path, "none", 1, 2, config=None)  # Triton completes it, and serves the newest
    models = scanned(tmp_path).models
    for number, (policy, wanted) in enumerate(POLICIES.items()):
        assert models[f"m{number}"].wanted == wanted, policy
    bare = models["none"]
    assert (bare.configuration, bare.wanted, bare.problem) == (None, (2,), "")


def test_what_was_recorded_with_a_model_comes_along(tmp_path: Path) -> None:
    config = 'backend: "x" output [ { name: "p" label_filename: "labels.txt" } ]'
    folder = write_model(tmp_path, "m", config=config)
    (folder / "labels.txt").write_text("zero\none\n")
    (folder / "preprocessing.json").write_text('{"scale": 2}')
    (folder / "model_card.json").write_text('{"summary": "s"}')
    write_model(tmp_path, "both", 1, config=ENSEMBLE)
    models = scanned(tmp_path).models
    assert models["m"].labels == {"p": ("zero", "one")}
    assert (models["m"].preprocessing, models["m"].card) == ({"scale": 2}, {"summary": "s"})
    assert models["both"].composing_models == ("one", "two")


UNREADABLE = [
    ("config.pbtxt", 'backend: "x"\nnonsense: 1\n', "line 2"),
    ("config.pbtxt", 'backend: "x"\n\ninput [\n  { dims: [ a ] }\n]', "line 4"),
    ("config.pbtxt", "version_policy { specific { versions: 9 } }", "selects no existing version"),
    ("config.pbtxt", 'output { label_filename: "gone" }', "'gone' does not exist"),
    ("config.pbtxt", 'output { label_filename: "../x" }', "outside"),
    ("config.pbtxt", 'output { label_filename: "/etc/passwd" }', "outside"),
    ("config.pbtxt", "\udcff", "not UTF-8"),
    ("config.pbtxt", "#" * ((1 << 20) + 1), "larger than"),
    ("model_card.json", "{", "not JSON"),
    ("model_card.json", "[]", "must contain a JSON object"),
    ("model_card.json", "[" * 200_000, "not JSON"),
    ("preprocessing.json", "1", "must contain a JSON object"),
]


def test_a_wrong_declaration_of_outputs_takes_no_model_out_of_service(tmp_path: Path) -> None:
    folder = write_model(tmp_path, "m", 1)
    row = '{"outputs": {"p": {"kind": "classes", "values": "logits", "labels": "%s"}}}'
    (folder / "labels.txt").write_text("zero\none\n")
    for document, labels in (
        (row % "labels.txt", {"p": ("zero", "one")}),
        (row % "missing.txt", {}),
        ('{"outputs": {"p": {"kind": "labels"}}}', {}),
        ("[]", {}),
    ):
        (folder / "outputs.json").write_text(document)
        model = scanned(tmp_path).models["m"]
        assert not model.problem, document
        assert (dict(model.labels), sorted(model.output_kinds)) == (labels, sorted(labels))


def test_a_model_that_cannot_be_read_is_shown_with_its_problem_and_harms_no_other(
    tmp_path: Path,
) -> None:
    for number, (file, text, _) in enumerate(UNREADABLE):
        folder = write_model(tmp_path, f"broken{number}")
        (folder / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    (tmp_path / "empty" / "01").mkdir(parents=True)
    write_model(tmp_path, "two words")
    write_model(tmp_path, "good")
    models = scanned(tmp_path).models
    for number, (_, text, problem) in enumerate(UNREADABLE):
        broken = models[f"broken{number}"]
        assert problem in broken.problem, text[:24]
        assert (broken.wanted, broken.configuration) == ((), None), text[:24]
    assert "no version folder" in models["empty"].problem
    assert "is not a valid model name" in models["two words"].problem
    assert (models["good"].problem, models["good"].wanted) == ("", (1, 2))


def test_a_folder_that_may_not_be_read_harms_no_other() -> None:
    with tempfile.TemporaryDirectory() as name:  # in which a user without rights may look
        folder, user = Path(name), os.geteuid()
        folder.chmod(0o755)
        locked = write_model(folder, "locked")
        write_model(folder, "good")
        locked.chmod(0)
        if user == 0:
            os.seteuid(65534)
        try:
            models = scanned(folder).models
        finally:
            os.seteuid(user)
            locked.chmod(0o700)
    assert models["good"].wanted == (1, 2)


def test_a_scan_reads_only_what_has_changed_and_says_whether_anything_has(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert not registry.scan()
    write_model(tmp_path, "same")
    changed = write_model(tmp_path, "changed", config="{")
    assert registry.scan()
    assert not registry.scan()
    before = dict(registry.models)
    assert before["changed"].problem
    (changed / "config.pbtxt").write_text('backend: "x"')  # it is repaired
    assert registry.scan()
    assert registry.models["same"] is before["same"]
    now = registry.models["changed"]
    assert (now.problem, now.wanted) == ("", (2,))
    (changed / "3").mkdir()
    assert registry.scan()
    assert registry.models["changed"].versions == (1, 2, 3)
    changed.rename(tmp_path / ".gone")
    assert registry.scan() and set(registry.models) == {"same"}


def test_what_vanishes_during_the_scan_does_not_take_its_model_away(tmp_path: Path) -> None:
    # The listing of one's own open files names the one that listed them, which has gone since.
    repository = tmp_path / "models"
    hidden = write_model(repository, ".m")
    visible = repository / "m"
    visible.symlink_to(hidden)
    registry = scanned(repository)
    assert set(registry.models) == {"m"}
    visible.unlink()
    visible.symlink_to("/proc/self/fd")
    registry.scan()
    assert set(registry.models) == {"m"}
    repository.rename(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match="cannot be read"):
        registry.scan()
    assert set(registry.models) == {"m"}


# --- the inventory: models of a folder, or of the replicas where there is none --------------------


class FakeTriton:
    """Stands for `TritonControl` where only configurations are asked for."""

    def __init__(self, **configs: str) -> None:
        self.configs = configs
        self.asked: list[str] = []

    async def config(self, model: str) -> Any:
        self.asked.append(model)
        if model not in self.configs:
            raise TritonFailed("not found")
        return triton_config.parse(self.configs[model]).message


async def test_a_model_whose_folder_has_gone_is_removed_until_it_comes_back(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    inventory, repository = plane.inventory, plane.repository
    write_model(repository)
    await inventory.scan()
    (repository / "m").rename(repository / ".gone")
    await inventory.scan()
    assert (inventory.models, inventory.removed) == ({}, {"m"})
    (repository / ".gone").rename(repository / "m")
    await inventory.scan()
    assert (set(inventory.models), inventory.removed) == ({"m"}, frozenset())
    repository.rename(tmp_path / "elsewhere")  # one that cannot be read removes nothing
    await inventory.scan()
    assert (set(inventory.models), inventory.removed) == ({"m"}, frozenset())


async def test_a_pool_wants_the_models_assigned_to_it_or_to_its_group(tmp_path: Path) -> None:
    plane = ControlPlane(tmp_path)
    write_model(plane.repository, "small")
    write_model(plane.repository, "big")
    bodies: dict[tuple[str, str], dict[str, str]] = {("model", "big"): {"pool": "a100"}}
    plane.decisions = Decisions({key: StoredEntry(body, 1) for key, body in bodies.items()})
    await plane.inventory.scan()
    assert set(plane.inventory.for_pool("a100")) == {"big"}
    assert set(plane.inventory.for_pool("default")) == {"small"}
    for pool, group in (("a100", "g"), ("default", "g"), ("h100", "other")):
        bodies["pool", pool] = {"group": group}
    plane.decisions = Decisions({key: StoredEntry(body, 1) for key, body in bodies.items()})
    await plane.inventory.scan()
    for pool in ("a100", "default"):
        assert set(plane.inventory.for_pool(pool)) == {"big", "small"}
        assert plane.inventory.elsewhere(pool) == set()
    assert plane.inventory.elsewhere("h100") == {"big", "small"}


def discovering() -> tuple[Inventory, Fleet]:
    fleet = Fleet((replica("a"), replica("b")), clock=Clock())
    return Inventory(None, fleet, decisions=Decisions), fleet


def test_without_a_folder_what_any_replica_holds_exists() -> None:
    inventory, fleet = discovering()
    fleet.saw("a", {"m": (1, 2)})
    fleet.saw("b", {"m": (3,), "x": (1,)})
    assert inventory.is_discovering
    versions = {name: model.versions for name, model in inventory.models.items()}
    assert versions == {"m": (1, 2, 3), "x": (1,)}


def learned(inventory: Inventory, triton: FakeTriton, *names: str) -> dict[str, Any]:
    held = dict.fromkeys(names, (1,))
    asyncio.run(inventory.learn(triton, held))  # type: ignore[arg-type]
    return {name: one.configuration for name, one in inventory.loadables.items()}


def test_the_configuration_of_what_was_discovered_is_asked_once_unless_it_cannot_be_read() -> None:
    inventory, fleet = discovering()
    fleet.saw("a", {"m": (1,), "x": (1,)})
    triton = FakeTriton(x='backend: "x" sequence_batching { }')
    known = learned(inventory, triton, "m", "x")
    assert known["m"] is None
    assert isinstance(known["x"], Configuration) and known["x"].batches_sequences
    triton.configs["m"] = 'backend: "m"'
    assert learned(inventory, triton, "m", "x")["m"] is not None
    assert triton.asked == ["m", "x", "m"]
