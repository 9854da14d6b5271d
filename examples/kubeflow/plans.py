"""The steps before and behind the building of a TensorRT plan, which alone needs a GPU.

A plan fits one TensorRT and one kind of GPU, so it is built in the very image of the pool that
will serve it (`build_plan` in `components.py`). These two need Servegate in place of a GPU: one
makes the kit for it, the other judges what the plan has answered.
"""

# ruff: noqa: F821

from kfp.dsl import Artifact, Input, Model, Output


def make_kit(model: str, entry: Input[Model], image: str, kit: Output[Artifact]):
    """A folder with all that the builder needs; what TensorRT cannot take is told here already."""
    words = ["--print", "docker", "--image", image, "--kit", kit.path]
    servegate("convert", "trt", f"{entry.path}/{model}", *words)
    say(f"the kit of a plan for {image}")


def add_plan(model: str, entry: Input[Model], built: Input[Artifact], planned: Output[Model]):
    """The entry with the plan as its first flavour, if that answers the golden cases rightly."""
    import shutil

    shutil.copytree(entry.path, planned.path)
    servegate("convert", "trt", f"{planned.path}/{model}", "--built", built.path)
    say("the plan answers the golden cases; the ONNX file stays for replicas that cannot run it")
