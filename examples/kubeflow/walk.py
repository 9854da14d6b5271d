"""The parts of the walk that both pipelines share, behind the training."""

from dataclasses import dataclass
from typing import Any

import components
from kfp import dsl
from placing import at_gateway, on_cpu, on_gpu


@dataclass(frozen=True, slots=True)
class Wish:
    """What is wanted of a run, as parameters of the pipeline."""

    model: Any
    label: Any
    minimum: Any
    allowed_drop: Any
    admin_url: Any
    key_secret: Any

    @property
    def bounds(self) -> dict[str, Any]:
        """What a model has to be, to get the label."""
        names = ("model", "label", "minimum", "allowed_drop", "admin_url")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, slots=True)
class Delivered:
    """What the last step tells of: the tasks that verified and promoted the version."""

    verified: Any
    promoted: Any


def judge(trained: Any, held_out: Any, wish: Wish) -> tuple[Any, Any]:
    """Measure the trained model, and hold it against the one that has the label."""
    evaluated = components.evaluate(trained=trained, held_out=held_out)
    on_cpu(evaluated, cpu="2", memory="8Gi")
    counted = {name: evaluated.outputs[name] for name in ("right", "rows")}
    judged = components.gate(held_out=held_out, **counted, **wish.bounds)
    at_gateway(judged, wish.key_secret)
    return evaluated, judged


def converted(trained: Any, parts: Any, wish: Wish) -> Any:
    """The entry of a model repository: ONNX, configuration, preprocessing, labels, contract."""
    rows = {"train": parts["train"], "held_out": parts["held_out"]}
    task = components.convert(model=wish.model, trained=trained, **rows)
    return on_cpu(task, cpu="2", memory="8Gi").outputs["entry"]


def planned(entry: Any, wish: Wish, gpu_nodes: Any) -> Any:
    """The entry with a TensorRT plan, built in the pool's image on one GPU of the pool's kind."""
    image = components.TRITON_IMAGE
    kit = on_cpu(components.make_kit(model=wish.model, entry=entry, image=image))
    built = components.build_plan(kit=kit.outputs["kit"])
    built.set_env_variable("HOME", "/tmp").set_env_variable("IMAGE", image)
    on_gpu(built, gpu_nodes)
    added = components.add_plan(model=wish.model, entry=entry, built=built.outputs["built"])
    return on_cpu(added).outputs["planned"]


def deliver(
    entry: Any, evaluated: Any, judged: Any, held_out: Any, wish: Wish, data_url: Any, grpc_url: Any
) -> Delivered:
    """Publish the version, ask it through the gateway, and let the label name it."""
    place = {"model": wish.model, "admin_url": wish.admin_url}
    run = dsl.PIPELINE_JOB_NAME_PLACEHOLDER
    pushed = components.push(entry=entry, golden=evaluated.outputs["golden"], run=run, **place)
    verified = components.verify(
        version=pushed.output,
        held_out=held_out,
        right=evaluated.outputs["right"],
        data_url=data_url,
        grpc_url=grpc_url,
        **wish.bounds,
    )
    identity = verified.outputs["Output"]
    promoted = components.promote(
        label=wish.label,
        version=pushed.output,
        verdict=judged.outputs["verdict"],
        verified=identity,
        **place,
    )
    for task in (pushed, verified, promoted):
        at_gateway(task, wish.key_secret)
    return Delivered(verified, promoted)


def show(new: Delivered, wish: Wish, pages_url: Any) -> None:
    """The last step: links to the model and to what was measured of it."""
    done = {"promoted": new.promoted.output, "verified": new.verified.outputs["Output"]}
    place = {"model": wish.model, "admin_url": wish.admin_url}
    at_gateway(components.link(**done, **place, pages_url=pages_url), wish.key_secret)
