"""Many rows in one process: `python -m conversion.zoo.together FOLDER ROW…`.

Each row is built and goes through the whole pipeline of a conversion, so that TensorFlow is
imported only once. How it ended is printed as a line of JSON that begins with `>`. With `--build`
the rows are only built, and their paths are printed.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from serve.workbench.conversion.child_events import EventTeller
from serve.workbench.conversion.job import ConversionTask, fault_of
from serve.workbench.conversion.pipeline import run
from serve.workbench.conversion.request import ConversionRequest
from serve.workbench.conversion.sources.inspection_child import read

from . import ROWS, Row

MARK = ">"
MEMORY = 8 << 30


@dataclass(frozen=True, slots=True)
class Ended:
    """How a row ended: with a model, or with a fault that blames a node."""

    row: str
    source: str
    code: str = ""
    why: str = ""
    operator: str = ""
    node: str = ""
    files: tuple[str, ...] = ()
    inspected: tuple[str, ...] = ()  # codes of the faults that an inspection tells
    beside: tuple[str, ...] = ()  # files that have appeared beside the source


def main() -> None:
    """Do the rows that the command line names."""
    only_built = "--build" in sys.argv
    folder, *names = (word for word in sys.argv[1:] if word != "--build")
    for name in names:
        row, place = ROWS[name], Path(folder) / name
        (place / "source").mkdir(parents=True)
        source = row.build(place / "source")
        ended = Ended(name, str(source)) if only_built else _converted(row, source, place)
        print(f"\n{MARK}{json.dumps(asdict(ended))}", flush=True)


def _converted(row: Row, source: Path, place: Path) -> Ended:
    work, scratch = place / "work", place / "scratch"
    work.mkdir()
    scratch.mkdir()
    request = ConversionRequest(str(source), signature=row.signature, nchw=row.nchw)
    telling = EventTeller()
    inspected = tuple(fault.code for fault in read(source, row.signature).faults)
    try:
        run(ConversionTask(request, source, None, None, None, work, scratch, MEMORY), telling)
    except Exception as error:
        fault = fault_of(error, telling.stage)
        words = (fault.code, fault.why, fault.operator, fault.node)
        beside = tuple(each.name for each in source.parent.iterdir() if each != source)
        return Ended(row.name, str(source), *words, inspected=inspected, beside=beside)
    files = sorted(str(path.relative_to(work)) for path in work.rglob("*") if path.is_file())
    return Ended(row.name, str(source), files=tuple(files), inspected=inspected)


if __name__ == "__main__":
    main()
