"""The steps as components of kfp: each function with what it uses, and the image that it runs in.

`install_kfp_package=False`: nothing is installed when a step starts; the images have what it needs
(Containerfile).
"""

import os
from collections.abc import Callable
from typing import Any

import cifar10
import digits
import gating
import plans
import shared
import steps
from kfp import dsl
from kfp.dsl import Artifact, Input, Output

REGISTRY = os.environ.get("REGISTRY", "")
STEPS_IMAGE = f"{REGISTRY}servegate-pipeline:0.1.0"
TRAINING_IMAGE = f"{REGISTRY}servegate-training:0.1.0"
TRITON_IMAGE = "nvcr.io/nvidia/tritonserver:26.07-py3"  # of the pool that serves


def component(
    function: Callable[..., Any], *used: Callable[..., Any], image: str = STEPS_IMAGE
) -> Any:
    """The function as a component; `used` and the two that all need go into its source."""
    make = dsl.component(
        base_image=image,
        install_kfp_package=False,
        additional_funcs=[shared.say, shared.servegate, *used],
    )
    return make(function)


preprocess_digits = component(digits.preprocess)
fit_digits = component(digits.fit, shared.tensors)
preprocess_cifar10 = component(cifar10.preprocess, cifar10.read_batches)
fit_cifar10 = component(
    cifar10.fit, shared.tensors, cifar10.resnet50, cifar10.learnable, image=TRAINING_IMAGE
)
_ASKING = (shared.standing_version, shared.zip_pictures, shared.run_evaluation)
evaluate = component(steps.evaluate, shared.tensors)
gate = component(steps.gate, *_ASKING, gating.decide)
convert = component(steps.convert, shared.tensors, shared.preprocessing)
make_kit = component(plans.make_kit)
add_plan = component(plans.add_plan)
push = component(steps.push)
verify = component(steps.verify, *_ASKING)
promote = component(steps.promote)
link = component(steps.link)


@dsl.container_component
def build_plan(kit: Input[Artifact], built: Output[Artifact]):
    """Build the plan, and ask it the golden cases through the Triton of this image."""
    script = 'mkdir -p "$1" && cp -R "$0"/. "$1" && exec python3 "$1"/onsite.py "$1"'
    return dsl.ContainerSpec(
        image=TRITON_IMAGE, command=["sh", "-ec", script], args=[kit.path, built.path]
    )
