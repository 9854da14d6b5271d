"""What the child process of a conversion is to do: the file that its parent has written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve.workbench.conversion.request import ConversionRequest


@dataclass(frozen=True, slots=True)
class ConversionTask:
    """One conversion. `model`: an ONNX file to hold against the source, None to make one.

    Paths are absolute; `memory` is in bytes.
    """

    request: ConversionRequest
    source: Path
    samples: Path | None
    labelled: Path | None
    model: Path | None
    work: Path
    scratch: Path
    memory: int

    @classmethod
    def read(cls, path: Path) -> "ConversionTask":
        """Read what `runner.py` wrote."""
        page: Any = json.loads(path.read_bytes())
        request, base = ConversionRequest.from_json(page["request"]), Path(page["base"])
        samples, labelled, model = (
            base / name if name else None
            for name in (request.samples, request.labelled, page["model"])
        )
        return cls(
            request,
            base / request.source,
            samples,
            labelled,
            model,
            Path(page["work"]),
            path.parent,
            int(page["memory"]),
        )
