"""Where a flavour's instances run: on a GPU, also where config.pbtxt keeps the ONNX file off it."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from tritonclient.grpc import model_config_pb2

from serve.triton.config import Configuration

_GROUP = model_config_pb2.ModelInstanceGroup


def on_gpu(base: Configuration) -> Mapping[str, Any]:
    """What a flavour has to say so that all its instances are on GPUs; nothing if they are.

    Where a group is on the processor, each GPU gets one instance: a count that was chosen for cores
    says nothing about a GPU.
    """
    groups = base.message.instance_group
    if not any(each.kind == _GROUP.KIND_CPU for each in groups):
        return MappingProxyType({})
    return MappingProxyType({"instance_group": [{"kind": "KIND_GPU", "count": 1}]})
