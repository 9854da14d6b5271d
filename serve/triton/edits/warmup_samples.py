"""Samples of warm-up, made of the inputs that a configuration names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from serve.core.errors import Invalid
from serve.triton.edits import values

if TYPE_CHECKING:
    from serve.triton.config import Configuration

FLAG = "--warmup"


def set_warmup(
    found: dict[str, Any], texts: Sequence[str], base: "Configuration", flag: str = FLAG
) -> None:
    """Put these samples in the place of all that there are; `none` alone removes them."""
    if list(texts) == [values.NONE]:
        found.pop("model_warmup", None)
        return
    samples = [values.sample(text, flag) for text in texts]
    found["model_warmup"] = [
        _written(
            f"{index}-batch-of-{one.batch}" if len(samples) > 1 else f"batch-of-{one.batch}",
            one,
            base,
            flag,
        )
        for index, one in enumerate(samples)
    ]


def _written(
    name: str, sample: values.WarmupSample, base: "Configuration", flag: str
) -> dict[str, Any]:
    """One sample with each input that a call has to have. Free dimensions are 1 unless said."""
    from tritonclient.grpc import model_config_pb2

    entries = [entry for entry in base.message.input if not entry.optional]
    if not entries:
        raise Invalid(
            f"{flag}: the inputs are unknown",
            why="the configuration does not list them; Triton reads them from the model file",
            try_this="pass --from FILE.json with model_warmup",
        )
    strange = sorted(sample.dims.keys() - {entry.name for entry in entries})
    if strange:
        raise Invalid(
            f"{flag}: there is no input '{strange[0]}'",
            why=f"the inputs are {', '.join(entry.name for entry in entries)}",
            try_this=f"dims={entries[0].name}:3",
        )
    inputs = {
        entry.name: {
            "data_type": model_config_pb2.DataType.Name(entry.data_type),
            "dims": list(sample.dims.get(entry.name, [max(size, 1) for size in entry.dims])),
            sample.data: True,
        }
        for entry in entries
    }
    written = {"name": name, "batch_size": sample.batch, "inputs": inputs}
    return {**written, "count": sample.count} if sample.count else written
