"""Rules about instance groups: how many copies of a model run, and where."""

from tritonclient.grpc import model_config_pb2

from serve.triton.lint.subject import Findings, LintFinding, LintSubject

MANY = 64  # instances of a group: each has the model's memory once more, and threads of its own
_GROUP = model_config_pb2.ModelInstanceGroup


def instance_count(subject: LintSubject) -> Findings:
    """The number of instances is negative.

    Triton 2.51 loads the model with its own default.
    """
    for index, group in enumerate(subject.message.instance_group):
        if group.count < 0:
            yield LintFinding(
                f"instance_group[{index}].count", f"it is {group.count}", "set count: 1"
            )


def instances_many(subject: LintSubject) -> Findings:
    """An instance group has more than 64 instances.

    Triton loads all of them, each with its own memory and threads.
    """
    for index, group in enumerate(subject.message.instance_group):
        if group.count > MANY:
            yield LintFinding(
                f"instance_group[{index}].count",
                f"{group.count} instances run at once, each with its own copy of the model",
                "use one or two per GPU, or as many as keep the CPU cores busy",
            )


def instances_passive(subject: LintSubject) -> Findings:
    """All instances are passive, so none executes calls.

    Triton 2.51 loads the model and crashes on the first call.
    """
    groups = subject.message.instance_group
    if groups and all(group.passive for group in groups):
        yield LintFinding(
            "instance_group.passive",
            "no instance executes calls, and the first call crashes Triton",
            "set passive: false in one group",
        )


def profile_without_plan(subject: LintSubject) -> Findings:
    """Optimisation profiles are set for a model that is not a TensorRT plan.

    Triton: `specifies profile field which is only supported for TensorRT models`.
    """
    for index, group in enumerate(subject.message.instance_group):
        if group.profile and subject.backend not in ("", "tensorrt"):
            yield LintFinding(
                f"instance_group[{index}].profile",
                f"only TensorRT plans have profiles, but the backend is {subject.backend}",
                "remove profile",
            )


def gpu_missing(subject: LintSubject) -> Findings:
    """KIND_GPU is set, but the replicas may not have a GPU.

    Triton: `has kind KIND_GPU but no GPUs are available`.
    """
    for index, group in enumerate(subject.message.instance_group):
        if group.kind == _GROUP.KIND_GPU and not group.gpus and not subject.gpus:
            yield LintFinding(
                f"instance_group[{index}].kind",
                "KIND_GPU loads only on a Triton with a GPU"
                if subject.gpus is None
                else "the Tritons of this pool have no GPU",
                "use KIND_AUTO, which uses a GPU if there is one",
            )


def gpus_without_gpu_kind(subject: LintSubject) -> Findings:
    """`gpus` is set in a group that does not run on GPUs.

    Triton: `has kind KIND_CPU but specifies one or more GPUs`.
    """
    for index, group in enumerate(subject.message.instance_group):
        if group.gpus and group.kind in (_GROUP.KIND_CPU, _GROUP.KIND_MODEL):
            yield LintFinding(
                f"instance_group[{index}].gpus",
                f"the group is {_GROUP.Kind.Name(group.kind)}",
                "set kind: KIND_GPU, or remove gpus",
            )


def gpu_number(subject: LintSubject) -> Findings:
    """An instance group names a GPU number that does not exist.

    Triton: `specifies invalid or unsupported gpu id`.
    """
    for index, group in enumerate(subject.message.instance_group):
        wrong = [n for n in group.gpus if n < 0 or (subject.gpus is not None and n >= subject.gpus)]
        if wrong and group.kind in (_GROUP.KIND_GPU, _GROUP.KIND_AUTO):
            there = "" if subject.gpus is None else f", the Tritons have {subject.gpus}"
            yield LintFinding(
                f"instance_group[{index}].gpus",
                f"there is no GPU {', '.join(map(str, wrong))}{there}",
                "use numbers from 0, or remove gpus to use all",
            )


def gpu_required(subject: LintSubject) -> Findings:
    """A TensorRT plan has CPU instances.

    The tensorrt backend refuses to load the model: `instance group … must be KIND_GPU`.
    """
    for index, group in enumerate(subject.message.instance_group):
        if subject.backend == "tensorrt" and group.kind == _GROUP.KIND_CPU:
            yield LintFinding(
                f"instance_group[{index}].kind",
                "a TensorRT plan runs on GPUs only",
                "set kind: KIND_GPU",
            )
