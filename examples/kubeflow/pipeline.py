"""The two pipelines: the same walk from data to a label, for a small model and for a large one.

preprocess ─▶ fit ─▶ evaluate ─▶ gate ─┬─▶ convert ─▶ (plan) ─▶ push ─▶ verify ─▶ promote ─▶ link
                                       └─ worse than what has the label: the run ends here
"""

import cifar10
import components
from kfp import dsl
from placing import on_cpu, on_gpu
from walk import Wish, converted, deliver, judge, planned, show

CONTROL = "http://servegate-control.servegate:8080"
DATA, DATA_GRPC = "http://servegate.servegate:8000", "servegate.servegate:8001"
KEY_SECRET = "servegate-pipeline"
GPU_NODES = {"nvidia.com/gpu.present": "true"}


@dsl.pipeline(name="servegate-digits", description="Digits, from data to a label; without a GPU.")
def digits_pipeline(
    model: str = "digits",
    label: str = "stable",
    epochs: int = 30,
    width: int = 16,
    seed: int = 7,
    minimum: float = 0.95,
    allowed_drop: float = 0.0,
    admin_url: str = CONTROL,
    data_url: str = DATA,
    grpc_url: str = DATA_GRPC,
    pages_url: str = "",
    key_secret: str = KEY_SECRET,
) -> bool:
    """Train a small network on scikit-learn's digits, and give it the label if it is no worse."""
    wish = Wish(model, label, minimum, allowed_drop, admin_url, key_secret)
    parts = on_cpu(components.preprocess_digits(seed=seed)).outputs
    rows = {"train": parts["train"], "validation": parts["validation"]}
    fitted = on_cpu(components.fit_digits(**rows, epochs=epochs, width=width, seed=seed))
    trained = fitted.outputs["trained"]
    evaluated, judged = judge(trained, parts["held_out"], wish)
    with dsl.If(judged.outputs["Output"] == True, "is no worse"):  # noqa: E712
        entry = converted(trained, parts, wish)
        new = deliver(entry, evaluated, judged, parts["held_out"], wish, data_url, grpc_url)
        show(new, wish, pages_url)
    return judged.outputs["Output"]


@dsl.pipeline(
    name="servegate-cifar10",
    description="ResNet-50 on CIFAR-10, from data to a label; one GPU to train, one for the plan.",
)
def cifar10_pipeline(
    archive: str = cifar10.ARCHIVE,
    sha256: str = cifar10.SHA256,
    model: str = "cifar10",
    label: str = "stable",
    epochs: int = 100,
    batch: int = 128,
    mixed_precision: bool = True,
    seed: int = 7,
    minimum: float = 0.9,
    allowed_drop: float = 0.0,
    gpu_nodes: dict = GPU_NODES,
    admin_url: str = CONTROL,
    data_url: str = DATA,
    grpc_url: str = DATA_GRPC,
    pages_url: str = "",
    key_secret: str = KEY_SECRET,
) -> bool:
    """Train ResNet-50 on CIFAR-10, build its TensorRT plan, and give it the label if no worse."""
    wish = Wish(model, label, minimum, allowed_drop, admin_url, key_secret)
    read = components.preprocess_cifar10(archive=archive, sha256=sha256, seed=seed)
    parts = on_cpu(read, cpu="2", memory="8Gi").outputs
    rows = {"train": parts["train"], "validation": parts["validation"]}
    learned = {"epochs": epochs, "batch": batch, "mixed_precision": mixed_precision}
    fitted = on_gpu(components.fit_cifar10(**rows, **learned, seed=seed), gpu_nodes)
    trained = fitted.outputs["trained"]
    evaluated, judged = judge(trained, parts["held_out"], wish)
    with dsl.If(judged.outputs["Output"] == True, "is no worse"):  # noqa: E712
        entry = planned(converted(trained, parts, wish), wish, gpu_nodes)
        new = deliver(entry, evaluated, judged, parts["held_out"], wish, data_url, grpc_url)
        show(new, wish, pages_url)
    return judged.outputs["Output"]
