"""A plan out of an ONNX file, through TensorRT's Python API; in the child process only.

    ONNX ─▶ parse, strongly typed ─▶ profiles and flags ─▶ build ─▶ read it back ─▶ golden cases

TensorRT 10 and 11 are known. An older one has no strongly typed networks: it would compute in
whatever is fastest, so it is refused. A level that a version does not have is an error only when it
was asked for.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from serve.core.errors import ConversionFailed
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.facts import Hardware, PlanFacts, layers_of, require_precision
from serve.workbench.conversion.plans.onsite import Device, first_device, this_platform, version_of
from serve.workbench.conversion.request import Precision

_HARDWARE = {Hardware.AMPERE: "AMPERE_PLUS", Hardware.SAME: "SAME_COMPUTE_CAPABILITY"}
_MOST_ERRORS = 20


@dataclass(frozen=True, slots=True)
class PlanOrder:
    """One plan to be built: of which file, into which file."""

    onnx: Path
    plan: Path
    options: Options
    precision: Precision
    image: str = ""


def build(
    order: PlanOrder,
    library: Any,
    logger: Any,
    monitor: Any,
    device: Callable[[], Device] = first_device,
) -> PlanFacts:
    """Write the plan and say what it is; `library` is the module `tensorrt`.

    `trt_unsupported` names a node; `trt_build_failed` says what TensorRT said last.
    """
    capability, name = device()
    builder = library.Builder(logger)
    network = builder.create_network(network_flags(library))
    parse(library.OnnxParser(network, logger), order.onnx.read_bytes())
    config = builder.create_builder_config()
    cache = configure(library, config, order.options)
    add_profiles(builder, config, order.options)
    config.progress_monitor = monitor
    began = time.monotonic()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise failed("trt_build_failed", logger.last)
    seconds = time.monotonic() - began
    content = bytes(plan)
    order.plan.write_bytes(content)
    if cache is not None:
        Path(order.options.timing_cache).write_bytes(bytes(cache.serialize()))
    return PlanFacts(
        tensorrt=version_of(order.plan),
        compute_capability=capability,
        device=name,
        precision=order.precision,
        sha256=sha256(content).hexdigest(),
        size=len(content),
        image=order.image,
        platform=this_platform(),
        profiles=order.options.profiles,
        version_compatible=order.options.version_compatible,
        hardware=order.options.hardware,
        tf32=order.options.tf32,
        seconds=round(seconds, 3),
    )


def proven(facts: PlanFacts, inspected: str) -> PlanFacts:
    """The facts with the layers' types; `precision_missing` when they are of another precision."""
    layers = layers_of(inspected)
    require_precision(facts.precision, layers)
    return replace(facts, layers=layers)


def network_flags(library: Any) -> int:
    """The flags of a strongly typed network; `trt_build_failed` where there is none."""
    flags = library.NetworkDefinitionCreationFlag
    if hasattr(flags, "STRONGLY_TYPED"):
        return 1 << int(flags.STRONGLY_TYPED)
    if int(str(library.__version__).partition(".")[0]) > 10:
        return 0  # all of them are
    raise failed(
        "trt_build_failed",
        f"TensorRT {library.__version__} has no strongly typed networks",
        hint="use TensorRT 10 or later: an image of Triton 24.05 or later",
    )


def configure(library: Any, config: Any, options: Options) -> Any:
    """Set what the options say; the timing cache, or None."""
    flags = library.BuilderFlag
    if not options.tf32:
        config.clear_flag(flags.TF32)
    if options.version_compatible:
        config.set_flag(flags.VERSION_COMPATIBLE)
    if level := _HARDWARE.get(options.hardware):
        levels = library.HardwareCompatibilityLevel
        if not hasattr(levels, level):
            why = f"TensorRT {library.__version__} has no compatibility level '{options.hardware}'"
            raise failed("trt_build_failed", why, hint="pass --hardware-compatible ampere+ or none")
        config.hardware_compatibility_level = getattr(levels, level)
    if options.workspace:
        config.set_memory_pool_limit(library.MemoryPoolType.WORKSPACE, options.workspace)
    config.profiling_verbosity = library.ProfilingVerbosity.DETAILED
    if not options.timing_cache:
        return None
    path = Path(options.timing_cache)
    cache = config.create_timing_cache(path.read_bytes() if path.is_file() else b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    return cache


def add_profiles(builder: Any, config: Any, options: Options) -> None:
    """One profile over all inputs; none for a network of fixed shapes."""
    if not options.profiles:
        return
    profile = builder.create_optimization_profile()
    for each in options.profiles:
        profile.set_shape(each.name, each.low, each.best, each.high)
    if config.add_optimization_profile(profile) < 0:
        raise failed("trt_profile", ", ".join(map(str, options.profiles)))


def parse(parser: Any, model: bytes) -> None:
    """Read an ONNX file into the parser's network; `trt_unsupported` names what it cannot take."""
    if parser.parse(model):
        return
    errors = [parser.get_error(at) for at in range(min(parser.num_errors, _MOST_ERRORS))]
    raise unsupported(errors)


def unsupported(errors: Sequence[Any]) -> ConversionFailed:
    """The error for what a parser complained of: the first node, and a sentence with all."""
    if not errors:
        return failed("trt_unsupported", "the parser gave no reason")
    told = [
        (str(_told(each, "node_operator")), str(_told(each, "node_name")), str(each.desc()))
        for each in errors
    ]
    sentences = [
        f"{operator or 'node'} '{node}': {why}" if node or operator else why
        for operator, node, why in told
    ]
    operator, node, _ = told[0]
    return failed("trt_unsupported", "; ".join(sentences), operator=operator, node=node)


def _told(error: Any, name: str) -> Any:
    return getattr(error, name)() if hasattr(error, name) else ""
