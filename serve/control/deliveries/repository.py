"""The repository on disk: how published versions lie there, and when one counts as whole.

    <repository>/<physical>/config.pbtxt        } of the group: the same for all versions
    <repository>/<physical>/labels.txt ...      } that share this name in Triton
    <repository>/<physical>/<number>/...        one version
    <repository>/.delivery/drafts/...           what is being built or taken away
    <repository>/.delivery/marks/<physical>/... one mark for the group and one for each version

Theory. A folder gets its name by rename, when everything in it is on the disk. Its mark, the digest
of what belongs into it, is written just before, and only while nothing has that name. So a folder
whose mark is right is of these very files, and their sizes tell whether somebody has touched them
since. A folder without a mark was not made here: it is never changed or removed.

Times of modification count: Triton starts a loaded version anew at the next load call when its
files, or a file beside config.pbtxt, look younger than before. So what is right is left alone, and
the files, which may be hard links, are never written to or touched.
"""

import hashlib
import os
import shutil
import stat
import uuid
from collections.abc import Iterable
from pathlib import Path

from serve.control.deliveries.delivery import Slot
from serve.core.errors import Conflict
from serve.core.versions import CONFIG, Manifest, VersionFile

OWN = ".delivery"
_DRAFTS, _MARKS, _GROUP = f"{OWN}/drafts", f"{OWN}/marks", "group"


def slot_of(manifest: Manifest) -> Slot:
    """The place of a version in a repository."""
    return manifest.physical, manifest.version


def version_mark(manifest: Manifest) -> str:
    """What the folder of this version is made of, as one word."""
    return _digest(f"{f.path} {f.size} {f.sha256}" for f in manifest.layout.version)


def group_mark(manifest: Manifest, config: str) -> str:
    """The same for config.pbtxt and the files beside it."""
    return _digest((config, *(f"{f.path} {f.size} {f.sha256}" for f in manifest.layout.model)))


def is_whole(manifest: Manifest, config: str, repository: Path) -> bool:
    """Whether a Triton would find exactly this version. Looks at sizes, not at contents."""
    layout = manifest.layout
    return (
        group_is_whole(manifest, config, repository)
        and _mark(repository, slot_of(manifest)) == version_mark(manifest)
        and _sizes_fit(layout.version, repository / manifest.physical)
    )


def new_draft(repository: Path) -> Path:
    """A path for what is being built, or goes; nobody looks there, and `sweep` clears it."""
    return room(repository / _DRAFTS / uuid.uuid4().hex)


def present(repository: Path) -> frozenset[Slot]:
    """Every place that holds, or once held, a version that was put there by `materialise`."""
    found: set[Slot] = set()
    for folder in _entries(repository / _MARKS):
        found.update((folder.name, int(m.name)) for m in _entries(folder) if m.name.isdigit())
    return frozenset(found)


def take_away(repository: Path, slot: Slot) -> None:
    """Remove a version; with the last one of its name, the group's files too."""
    physical, number = slot
    model, marks = repository / physical, repository / _MARKS / physical
    _discard(repository, model / str(number))
    (marks / str(number)).unlink(missing_ok=True)
    others = [mark for mark in _entries(marks) if mark.name.isdigit()]
    if others or any(entry.is_dir() and entry.name.isdigit() for entry in _entries(model)):
        return
    if marks.exists():
        _discard(repository, model)
        shutil.rmtree(marks)


def sweep(repository: Path) -> None:
    """Remove what a process left that was killed while it built or took away."""
    for draft in _entries(repository / _DRAFTS):
        shutil.rmtree(draft, ignore_errors=True)


def place_group(manifest: Manifest, config: str, draft: Path, repository: Path) -> None:
    """Each file replaces its predecessor; the mark comes last, so that a crash is made good."""
    model = repository / manifest.physical
    mark = room(repository / _MARKS / manifest.physical / _GROUP)
    mark.unlink(missing_ok=True)
    for path in (*(file.path for file in manifest.layout.model), CONFIG):
        (draft / path).replace(room(model / path))
    settle(model)
    _sync(repository)
    _write_mark(mark, group_mark(manifest, config))


def place_version(manifest: Manifest, folder: Path, repository: Path) -> None:
    """The finished folder takes the version's place; what was there is gone."""
    model, number = repository / manifest.physical, str(manifest.version)
    _discard(repository, model / number)
    _write_mark(repository / _MARKS / manifest.physical / number, version_mark(manifest))
    folder.rename(model / number)
    _sync(model)


def require_ours(repository: Path, slot: Slot) -> None:
    """`Conflict` when something that was not made here lies in the version's place."""
    physical, number = slot
    model, marks = repository / physical, repository / _MARKS / physical
    for place, mark in ((model, marks), (model / str(number), marks / str(number))):
        if place.is_symlink() or (place.exists() and not mark.exists()):
            raise Conflict(
                f"'{place}' was not created by Servegate",
                why="Servegate needs this path for a published version, and does not overwrite it",
                try_this="move it away, or use another folder for deliveries",
            )


def group_is_whole(manifest: Manifest, config: str, repository: Path) -> bool:
    """Whether config.pbtxt and the files beside it are right."""
    model = repository / manifest.physical
    try:
        written = (model / CONFIG).read_bytes()
    except OSError:
        return False
    return (
        written == config.encode()
        and _mark(repository, (manifest.physical, _GROUP)) == group_mark(manifest, config)
        and _sizes_fit(manifest.layout.model, model)
    )


def _sizes_fit(files: Iterable[VersionFile], folder: Path) -> bool:
    for file in files:
        try:
            status = (folder / file.path).lstat()
        except OSError:
            return False
        if not stat.S_ISREG(status.st_mode) or status.st_size != file.size:
            return False
    return True


def _mark(repository: Path, place: tuple[str, int | str]) -> str:
    try:
        return (repository / _MARKS / place[0] / str(place[1])).read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return ""


def _write_mark(path: Path, text: str) -> None:
    scratch = path.with_name(f".{path.name}")
    scratch.unlink(missing_ok=True)
    write_new(scratch, text.encode())
    scratch.replace(path)
    _sync(path.parent)


def _discard(repository: Path, folder: Path) -> None:
    """Out of sight at once, and then deleted."""
    if not folder.exists():
        return
    draft = new_draft(repository)
    folder.rename(draft)
    _sync(folder.parent)
    shutil.rmtree(draft, ignore_errors=True)


def write_new(path: Path, data: bytes) -> None:
    """A new file that nobody may write to, on the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    path.chmod(0o444)


def room(path: Path) -> Path:
    """The path, with a folder around it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def settle(folder: Path) -> None:
    """The names of everything in this folder are on the disk; sources have seen to the bytes."""
    for place, _, _ in os.walk(folder):
        _sync(Path(place))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entries(folder: Path) -> tuple[Path, ...]:
    try:
        return tuple(sorted(folder.iterdir()))
    except (FileNotFoundError, NotADirectoryError):
        return ()


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
