"""Changes of what has several flavours: they go below the flavour, and must leave it as it is."""

import json
from pathlib import Path

from control.batching.changing_scene import CONFIG, Scene, Triton
from control.versions_scene import version

from serve.core.errors import Conflict, TritonFailed

FAST = json.dumps({"format": 1, "flavours": [{"name": "fast", "file": "fast.onnx"}]})


class Particular(Triton):
    """One in which the fast file takes no large batches."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[tuple[str, int]] = []

    async def load(self, model: str, config: str | None) -> None:
        page = json.loads(config or "{}")
        file, size = page.get("default_model_filename", "base"), page["max_batch_size"]
        self.loaded.append((file, size))
        if file == "fast.onnx" and size > 16:
            raise TritonFailed("it takes no batches of this size")
        await super().load(model, config)


def scene(folder: Path) -> tuple[Scene, Particular]:
    triton = Particular()
    one = version("m", 1, config=CONFIG, flavours=FAST)
    return Scene(folder, one, tritons={"a": triton}, replicas="a"), triton


def test_a_change_goes_below_the_flavour_that_a_replica_runs(tmp_path: Path) -> None:
    made, triton = scene(tmp_path)
    assert made.play(made.sized(16)) == [None]
    assert triton.loaded == [("fast.onnx", 8), ("fast.onnx", 16)]


def test_a_change_that_costs_a_replica_its_flavour_is_taken_back_and_so_is_the_flavour(
    tmp_path: Path,
) -> None:
    made, triton = scene(tmp_path)
    (error,) = made.play(made.sized(64))
    assert isinstance(error, Conflict)
    assert "it cannot run as flavour 'fast': it takes no batches of this size" in error.why
    assert triton.loaded[:2] == [("fast.onnx", 8), ("fast.onnx", 64)]
    assert triton.loaded[-1] == ("fast.onnx", 8)
