"""Our use of TensorRT against its real bindings. Not collected by itself: TensorRT is 4 GB.

    pip install tensorrt-cu12==10.13.2.6        # or another version from 10 on
    python -m pytest tests/workbench/conversion/plans/check_tensorrt.py

It needs no GPU. What is checked: that every name is there with the types that we give it. What only
a GPU can show (that a plan is built and answers) is not.
"""

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tensorrt

from serve.workbench.conversion.plans.arguments import Options
from serve.workbench.conversion.plans.builder import configure, network_flags, unsupported
from serve.workbench.conversion.plans.facts import Hardware
from serve.workbench.conversion.plans.tensorrt_log import Logger, Monitor

from .played_tensorrt import Config, Context, Engine, Library, ParserError, ShapeProfile

PLAYED: Mapping[str, tuple[type, str]] = {
    "Config": (Config, "IBuilderConfig"),
    "Context": (Context, "IExecutionContext"),
    "Engine": (Engine, "ICudaEngine"),
    "ParserError": (ParserError, "ParserError"),
    "ShapeProfile": (ShapeProfile, "IOptimizationProfile"),
}
NEEDED = {
    "Builder": "create_network create_builder_config create_optimization_profile "
    "build_serialized_network",
    "OnnxParser": "parse num_errors get_error",
    "Runtime": "deserialize_cuda_engine",
    "EngineInspector": "execution_context get_engine_information",
    "IBuilderConfig": "profiling_verbosity progress_monitor hardware_compatibility_level",
    "ITimingCache": "serialize",
    "IProgressMonitor": "phase_start step_complete phase_finish",
    "ILogger": "log VERBOSE ERROR INTERNAL_ERROR",
}


class Checked(Config):
    """Takes only flags and levels of the real types, under names that the real class has."""

    def set_flag(self, flag: Any) -> None:
        assert isinstance(flag, tensorrt.BuilderFlag)
        super().set_flag(flag.name)

    def clear_flag(self, flag: Any) -> None:
        assert isinstance(flag, tensorrt.BuilderFlag)
        super().clear_flag(flag.name)

    def set_memory_pool_limit(self, pool: Any, size: int) -> None:
        assert isinstance(pool, tensorrt.MemoryPoolType)
        super().set_memory_pool_limit(pool.name, size)

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("flags", "limits", "profiles", "cache"):
            assert hasattr(tensorrt.IBuilderConfig, name)
        object.__setattr__(self, name, value)


@pytest.mark.parametrize("role", PLAYED)
def test_what_is_played_has_no_name_that_the_real_one_lacks(role: str) -> None:
    played, real = PLAYED[role]
    names = [name for name, value in vars(played).items() if name[0] != "_" and callable(value)]
    assert not [name for name in names if not hasattr(getattr(tensorrt, real), name)]


@pytest.mark.parametrize("kind", NEEDED)
def test_every_name_that_is_used_is_there(kind: str) -> None:
    names = NEEDED[kind].split()
    assert not [name for name in names if not hasattr(getattr(tensorrt, kind), name)]


def test_every_value_that_is_played_is_a_real_one() -> None:
    enums = {name: value for name, value in vars(Library).items() if hasattr(value, "__dict__")}
    for name, played in enums.items():
        if name[0].isupper() and not callable(played):
            assert not [one for one in vars(played) if not hasattr(getattr(tensorrt, name), one)]


def test_options_are_set_with_values_of_the_real_types() -> None:
    config = Checked()
    options = Options((), False, True, Hardware.AMPERE, 1 << 30)
    assert configure(tensorrt, config, options) is None
    assert config.flags == {"VERSION_COMPATIBLE"}
    assert config.limits == {"WORKSPACE": 1 << 30}
    level: Any = vars(config)["hardware_compatibility_level"]
    assert level == tensorrt.HardwareCompatibilityLevel.AMPERE_PLUS


def test_networks_are_strongly_typed() -> None:
    assert network_flags(tensorrt) == 1 << int(
        tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    )


def test_logger_and_monitor_are_what_tensorrt_takes() -> None:
    told: list[Any] = []
    logger, monitor = Logger(), Monitor(lambda kind, **facts: told.append((kind, facts)))
    assert isinstance(logger, tensorrt.ILogger)
    assert isinstance(monitor, tensorrt.IProgressMonitor)
    logger.log(tensorrt.ILogger.ERROR, "no tactic")
    logger.log(tensorrt.ILogger.WARNING, "slow")
    assert logger.last == "no tactic"
    monitor.phase_start("build", None, 4)
    monitor.phase_start("tactics", "build", 9)
    threads = [threading.Thread(target=monitor.step_complete, args=("build", n)) for n in (0, 1)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert monitor.step_complete("tactics", 1)
    monitor.phase_finish("build")
    assert sorted(facts["done"] for _, facts in told) == [1, 2]
    assert {facts["total"] for _, facts in told} == {4}


def test_errors_of_the_parser_have_the_names_that_are_read() -> None:
    real = tensorrt.ParserError
    assert callable(real.desc)
    assert callable(real.node_name)
    assert callable(real.node_operator)
    assert unsupported([]).code == "trt_unsupported"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("FLOAT", np.float32), ("HALF", np.float16), ("INT64", np.int64), ("BOOL", np.bool_)],
)
def test_types_of_tensors_are_types_of_numpy(kind: str, expected: type) -> None:
    assert np.dtype(tensorrt.nptype(getattr(tensorrt.DataType, kind))) == np.dtype(expected)
