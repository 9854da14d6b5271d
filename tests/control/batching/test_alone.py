"""A configuration that is loaded anew where nobody else could be called: calls go on meanwhile."""

from pathlib import Path

from control.batching.changing_scene import CONFIG, Proof, Scene
from control.versions_scene import version

from serve.control.versions import PublishedVersion
from serve.core.errors import Conflict
from serve.core.replicas import Replica


class Looking(Proof):
    """Publishes what may be called while it verifies, and remembers where calls could go."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.tritons)
        self._scene = scene
        self.called: list[tuple[str, tuple[str, ...]]] = []

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        await self._scene.plane.publisher.refresh()
        targets = self._scene.plane.publisher.snapshot.models["m"].targets
        self.called.append((replica.name, targets[1].replicas if 1 in targets else ()))
        return await super().verify(replica, version)


def looked(folder: Path, replicas: str) -> tuple[Scene, Looking]:
    scene = Scene(folder, version("m", 1, config=CONFIG), replicas=replicas)
    proof = Looking(scene)
    scene.use(proof)
    return scene, proof


def test_an_only_replica_is_called_while_what_it_has_loaded_is_proven(tmp_path: Path) -> None:
    scene, proof = looked(tmp_path, "a")
    assert scene.play(scene.sized(16)) == [None]
    never_proven, changed = proof.called
    assert (never_proven, changed) == (("a", ()), ("a", ("a",)))


def test_where_another_replica_can_be_called_it_is(tmp_path: Path) -> None:
    scene, proof = looked(tmp_path, "ab")
    assert scene.play(scene.sized(16)) == [None]
    assert proof.called[0] == ("a", ())  # what was never proven is not called
    assert sorted(proof.called[-2:]) == [("a", ("b",)), ("b", ("a",))]


def test_an_only_replica_that_answers_wrongly_is_called_no_more_until_it_is_as_before(
    tmp_path: Path,
) -> None:
    scene, proof = looked(tmp_path, "a")

    proof.wrong_with = {16}
    (error,) = scene.play(scene.sized(16))
    assert isinstance(error, Conflict)
    assert scene.plane.publisher.snapshot.models["m"].targets[1].replicas == ("a",)
