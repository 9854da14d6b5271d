"""`inspect` tells everything about a source that can be known without converting it."""

from pathlib import Path

from serve.core.errors import Invalid
from serve.model_files.reader import ReaderTooSlow, TooLarge, ask
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.sources.checks import MOST
from serve.workbench.conversion.sources.inspection import Inspection

_READER = "serve.workbench.conversion.sources.inspection_child"


async def inspect(
    path: Path,
    *,
    signature: str = "",
    timeout: float = 120.0,  # noqa: ASYNC109 — the child gets it as a limit as well
    memory: int = 2 << 30,
    most: int = MOST,
) -> Inspection:
    """Look into a source, in a child process under limits and without TensorFlow.

    What is wrong with it is among its `faults`. `ConversionFailed` for what is no source at all,
    and for what cannot be looked into within `timeout` seconds and `memory` bytes. Call it in the
    main thread, whose death the child notices.
    """
    try:
        page = await ask(_READER, path, signature, str(most), timeout=timeout, memory=memory)
    except ReaderTooSlow as error:
        raise failed("timed_out", error.why) from error
    except TooLarge as error:
        raise failed("out_of_memory", error.why) from error
    except Invalid as error:
        raise failed("source_corrupt", error.why) from error
    return Inspection.from_json(page)
