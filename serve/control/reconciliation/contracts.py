"""Contracts in force: versions are asked before they get calls, and again and again afterwards.

Questions go straight to one replica, under physical names. An answer that is wrong, late, or an
error is told as a sentence; that a replica cannot be reached says nothing about its versions, so it
is raised as `Unavailable`.

Warm-up calls: inputs that are made up for a version which has no contract.

Only for backends that run a graph and nothing else. Zeros are an index into any table and a part of
any vocabulary; a model that does not like them says so, and is none the worse for it.
"""

import asyncio
import logging
import math
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from tritonclient.grpc import model_config_pb2

from serve.control.added_cases import added_case, added_of, has_cases
from serve.control.applied_configurations import configuration_of
from serve.control.artifacts.contents import Contents
from serve.control.artifacts.storage import ArtifactStorage
from serve.control.decisions import Decisions
from serve.control.versions import PublishedVersion
from serve.core.errors import ServegateError, Unavailable
from serve.core.replicas import Replica
from serve.processes import Clock, SystemClock
from serve.tensors.contracts import Case, Contract, judge
from serve.tensors.datatypes import BYTES, DATATYPES, Array, Shape, numpy_dtype
from serve.triton.config import Configuration
from serve.triton.direct_prediction import Predict, predict

# --- warm-up calls --------------------------------------------------------------------------------


_GRAPHS = frozenset({"onnxruntime", "tensorrt", "pytorch", "openvino"})
_PLATFORMS = {
    "onnxruntime_onnx": "onnxruntime",
    "tensorrt_plan": "tensorrt",
    "pytorch_libtorch": "pytorch",
}
_MOST_BYTES = 64 << 20
_MOST_INSTANCES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Blank:
    """Inputs of one call, and their datatypes."""

    inputs: Mapping[str, Array]
    datatypes: Mapping[str, str]


def blank(config: Configuration, signature: Mapping[str, Any]) -> Blank | None:
    """Zeros in the shapes of the configuration, or else of the signature, free sizes being 1.

    None where nothing should be made up, or the shapes are not known.
    """
    message = config.message
    if _PLATFORMS.get(message.platform, message.backend) not in _GRAPHS:
        return None
    batch = (1,) if message.max_batch_size > 0 else ()
    wanted: dict[str, tuple[str, Shape | None]] = {
        item.name: (_datatype(item.data_type), (*batch, *item.dims))
        for item in message.input
        if not item.optional
    } or {
        str(item["name"]): (str(item["datatype"]), _shape(item["shape"]))
        for item in signature.get("inputs", ())
    }
    inputs: dict[str, Array] = {}
    size = 0
    for name, (datatype, shape) in wanted.items():
        if shape is None or datatype not in DATATYPES:
            return None
        sizes = tuple(length if length >= 0 else 1 for length in shape)
        size += math.prod(sizes) * 8
        if size > _MOST_BYTES:
            return None
        inputs[name] = np.full(sizes, b"" if datatype == BYTES else 0, numpy_dtype(datatype))
    datatypes = {name: datatype for name, (datatype, _) in wanted.items()}
    return Blank(inputs, datatypes) if inputs else None


def instances(config: Configuration) -> int:
    """About how many instances there are: so many calls at once reach each of them."""
    groups = config.message.instance_group
    count = sum((group.count or 1) * (len(group.gpus) or 1) for group in groups)
    return min(max(count, 1), _MOST_INSTANCES)


def _datatype(data_type: int) -> str:
    name: str = model_config_pb2.DataType.Name(data_type).removeprefix("TYPE_")
    return BYTES if name == "STRING" else name


def _shape(sizes: Any) -> Shape | None:
    return None if sizes is None else tuple(int(size) for size in sizes)


# --- contracts in force ---------------------------------------------------------------------------


Target = tuple[Replica, PublishedVersion]
Report = Callable[[str, PublishedVersion, str], Awaitable[None]]
Parameters = Mapping[str, bool | int | str]

PATIENCE = 30.0  # seconds for one answer
SECOND_LOOK = 2.0  # seconds after a wrong answer
CACHE_BYTES = 128 << 20
_WARM_CASES = 8  # of a contract; the others are asked by `verify`
_CORRID = model_config_pb2.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID
_log = logging.getLogger("servegate.contracts")


class Contracts:
    """Runs the contracts of published versions. The most recently used ones stay in memory."""

    def __init__(
        self,
        storage: ArtifactStorage,
        *,
        decisions: Callable[[], Decisions],
        ask: Predict = predict,
        clock: Clock | None = None,
        draw: Callable[[], float] = random.random,
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._contents = Contents(storage)
        self._storage = storage
        self._decisions = decisions
        self._ask = ask
        self._clock = clock or SystemClock()
        self._draw = draw
        self._cache_bytes = cache_bytes
        self._cache: OrderedDict[str, Contract] = OrderedDict()  # the longest unused one first
        self._sizes: dict[str, int] = {}  # bytes, of what is in the cache

    def __repr__(self) -> str:
        return f"<Contracts {len(self._cache)} in memory>"

    async def verify(self, replica: Replica, version: PublishedVersion) -> str:
        """Empty when its answers are right, or it has no contract; else why not."""
        contract = await self._contract(version)
        return "" if contract is None else await self.judge(replica, version, contract)

    async def judge(self, replica: Replica, version: PublishedVersion, contract: Contract) -> str:
        """The same with a contract that need not be published yet."""
        config = configuration_of(self._decisions(), version)
        takes_sequences = self._takes_sequences(config)
        for number, case in enumerate(contract.cases):
            parameters = self._sequence(config) if takes_sequences else {}
            try:
                answer = await self._answer(replica, version, case, parameters)
                why = await asyncio.to_thread(judge, case, answer)
            except Unavailable:
                raise
            except ServegateError as error:
                why = str(error)
            if why:
                named = f" ('{case.name}')" if case.name else ""
                return f"golden case {number}{named}: {why}"
        return ""

    async def warm(self, replica: Replica, version: PublishedVersion) -> None:
        """Ask what the contract asks, or something made up; models of sequences are left alone."""
        try:
            config = configuration_of(self._decisions(), version)
            if self._takes_sequences(config):
                return
            contract = await self._contract(version)
            if contract is not None:
                cases = contract.cases[:_WARM_CASES]
            else:
                made_up = blank(config, version.signature)
                if made_up is None:
                    return
                cases = (Case(made_up.inputs, {}, datatypes=made_up.datatypes),)
            for case in cases:
                asked = (self._answer(replica, version, case, {}) for _ in range(instances(config)))
                for answer in await asyncio.gather(*asked, return_exceptions=True):
                    if isinstance(answer, BaseException):
                        raise answer
        except ServegateError as error:
            _log.info("cannot warm up %s on %s: %s", version.key, replica.name, error)

    async def run(
        self, targets: Callable[[], Iterable[Target]], report: Report, interval: float
    ) -> None:
        """Verify every target with a contract once in `interval` seconds, for ever, one at a time.

        Two wrong answers in a row are reported by replica, version and reason; the first right
        one after that with an empty reason. So a target stays one while it is known to be wrong.
        """
        wrong: set[tuple[str, str]] = set()
        while True:
            await self._clock.sleep(interval)
            wrong &= {_key(target) for target in targets()}
            for target in tuple(targets()):
                if not has_cases(self._decisions(), target[1]):
                    continue
                why = await self._look(target)
                if why and _key(target) not in wrong:
                    await self._clock.sleep(SECOND_LOOK)
                    is_one = any(_key(one) == _key(target) for one in targets())
                    why = await self._look(target) if is_one else None
                if why is not None and bool(why) != (_key(target) in wrong):
                    await self._tell(target, why, report, wrong)

    async def _look(self, target: Target) -> str | None:
        """What `verify` says; None when that cannot be found out now."""
        try:
            return await self.verify(*target)
        except Unavailable:
            return None  # others see to it that nobody is sent there
        except ServegateError as error:
            _log.warning("the contract of %s cannot be run: %s", target[1].key, error)
            return None

    async def _tell(
        self, target: Target, why: str, report: Report, wrong: set[tuple[str, str]]
    ) -> None:
        replica, version = target
        try:
            await report(replica.name, version, why)
        except ServegateError as error:  # told again after the next look
            _log.warning("cannot record the result of the contract of %s: %s", version.key, error)
        else:
            wrong.symmetric_difference_update({_key(target)})

    async def _answer(
        self, replica: Replica, version: PublishedVersion, case: Case, parameters: Parameters
    ) -> Mapping[str, Array]:
        return await self._ask(
            replica,
            version.physical or version.model,
            version.number,
            case.inputs,
            timeout=PATIENCE,
            datatypes=case.datatypes,
            parameters=parameters,
        )

    def _sequence(self, config: Configuration) -> Parameters:
        """What makes a question a whole sequence of its own."""
        identity = 1 + int(self._draw() * (1 << 52))
        controls = config.message.sequence_batching.control_input
        is_text = any(
            control.kind == _CORRID and control.data_type == model_config_pb2.TYPE_STRING
            for item in controls
            for control in item.control
        )
        return {
            "sequence_id": f"servegate-{identity}" if is_text else identity,
            "sequence_start": True,
            "sequence_end": True,
        }

    def _takes_sequences(self, config: Configuration) -> bool:
        """Whether it, or a published part of it, batches sequences."""
        if config.batches_sequences or not config.composing_models:
            return config.batches_sequences
        steps = config.message.ensemble_scheduling.step
        parts = {(step.model_name, int(step.model_version)) for step in steps}
        return any(
            configuration_of(self._decisions(), one).batches_sequences
            for versions in self._decisions().versions.values()
            for one in versions.values()
            if (one.physical, one.number) in parts
        )

    async def _contract(self, version: PublishedVersion) -> Contract | None:
        """What came with a published version and what was added; from memory, if read before."""
        added = added_of(self._decisions(), version)
        if not version.has_contract and not added:
            return None
        name = " ".join((version.key, *(one.id for one in added)))
        found = self._cache.get(name)
        if found is None:
            own = await self._own(version)
            more = [await added_case(self._storage, one) for one in added]
            if own is None and not more:
                return None
            found = Contract((*(own.cases if own else ()), *more))
            self._cache[name] = found
            self._sizes[name] = found.size
        self._cache.move_to_end(name)
        while sum(self._sizes[key] for key in self._cache) > self._cache_bytes:
            self._sizes.pop(self._cache.popitem(last=False)[0])
        return found

    async def _own(self, version: PublishedVersion) -> Contract | None:
        if not version.has_contract:
            return None
        manifest = await self._storage.manifest(version.model, version.number)
        return await self._contents.contract(manifest.layout)


def _key(target: Target) -> tuple[str, str]:
    return target[0].name, target[1].key
