"""The folder that Triton gets as `--backend-directory`: the wheel's Python backend, and ours.

The wheel keeps backend and stub apart, and nothing may be written into site-packages. So the folder
is put together under the state folder:

    backends-<digest>/
    ├── python/        the wheel's Python backend, and the stub of the running Python
    └── onnxruntime/   every folder of serve/triton/backends

The digest covers all that goes in. A folder appears under its name only when it is complete, so
one that is there is whole and is used again.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from serve.triton.installation import Installation

OURS = Path(__file__).parent / "backends"


def build_backend_directory(installation: Installation, state: Path, *, ours: Path = OURS) -> Path:
    """The complete backend directory under `state`; built if need be, older ones removed.

    The caller holds the lock of the state folder, so nobody else builds or uses one there.
    """
    home = (state / "triton").resolve()
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = home / f"backends-{_digest(installation, ours)}"
    if not target.is_dir():
        draft = Path(tempfile.mkdtemp(prefix="backends-draft-", dir=home))
        _fill(draft, installation, ours)
        draft.rename(target)
    for other in home.glob("backends-*"):
        if other != target:
            shutil.rmtree(other, ignore_errors=True)
    return target


def _fill(folder: Path, installation: Installation, ours: Path) -> None:
    python = folder / "python"
    shutil.copytree(installation.python_backend, python, ignore=_leave_out)
    stub = shutil.copy(installation.stub, python)
    os.chmod(stub, 0o755)  # noqa: PTH101
    for backend in _backends(ours):
        shutil.copytree(backend, folder / backend.name, ignore=_leave_out)


def _digest(installation: Installation, ours: Path) -> str:
    """Of the wheel's version (its content is fixed by it), the Python version and our files."""
    digest = hashlib.sha256(f"{installation.version} {installation.python}".encode())
    for backend in _backends(ours):
        for file in sorted(path for path in backend.rglob("*") if path.is_file()):
            if "__pycache__" not in file.parts:
                content = file.read_bytes()
                digest.update(f"\0{file.relative_to(ours)}\0{len(content)}\0".encode() + content)
    return digest.hexdigest()[:12]


def _backends(ours: Path) -> Iterator[Path]:
    return (path for path in sorted(ours.iterdir()) if path.is_dir() and path.name[0] not in "._")


_leave_out = shutil.ignore_patterns("__pycache__")
