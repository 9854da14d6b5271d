"""Where steps run on a cluster: none asks for a GPU unless it computes on one, and then for one.

| step                         | node                                       | GPUs |
|------------------------------|--------------------------------------------|------|
| trains or builds a plan      | as `gpu_nodes` says, whose taint it bears  | 1    |
| all others                   | one without a GPU, where nodes say so      | 0    |

Source: the labels of NVIDIA's GPU feature discovery, and the taint that its operator documents.
"""

from typing import Any

from kfp import kubernetes

GPU = "nvidia.com/gpu"
KEY = {"key": "SERVEGATE_KEY"}  # the entry of the Secret, and the variable it becomes


def on_cpu(task: Any, cpu: str = "1", memory: str = "2Gi") -> Any:
    """A step that needs no GPU keeps away from the nodes that have some."""
    task.set_cpu_request(cpu).set_memory_request(memory).set_memory_limit(memory)
    without = {"key": f"{GPU}.present", "operator": "DoesNotExist"}
    return kubernetes.add_node_affinity(task, match_expressions=[without])


def on_gpu(task: Any, nodes: Any, cpu: str = "4", memory: str = "16Gi") -> Any:
    """A step that needs one GPU; `nodes` are the labels of the nodes that it may take."""
    task.set_cpu_request(cpu).set_memory_request(memory).set_memory_limit(memory)
    task.set_accelerator_type(GPU).set_accelerator_limit(1)
    kubernetes.add_toleration(task, key=GPU, operator="Exists", effect="NoSchedule")
    return kubernetes.add_node_selector_json(task, nodes)


def at_gateway(task: Any, key_secret: Any) -> Any:
    """A step that asks the gateway: with the key, if that Secret is there, and never cached."""
    task.set_caching_options(False)
    kubernetes.use_secret_as_env(task, secret_name=key_secret, secret_key_to_env=KEY, optional=True)
    return on_cpu(task)
