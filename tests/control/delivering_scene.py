"""A scene for deliveries: a storage with published versions, and what a repository looks like."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from serve.control.artifacts.storage import ArtifactStorage
from serve.control.versions import PublishedVersion
from serve.core.errors import NotFound
from serve.core.versions import Manifest, Provenance, VersionFile, VersionState, check_files

CONFIG = 'backend: "onnxruntime"\n'
MODEL = {"model.onnx": b"weights of one", "assets/words.txt": b"a\nb\n"}
BY = Provenance("ada", 1_700_000_000.0)


class Shelf:
    """Stands for the storage: blobs in a folder, manifests in memory. Counts what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.manifests: dict[tuple[str, int], Manifest] = {}
        self.fetched: list[str] = []
        self.read = 0

    def blob(self, sha256: str) -> Path:
        return self.folder / sha256

    def add(self, data: bytes) -> str:
        sha256 = hashlib.sha256(data).hexdigest()
        if not self.blob(sha256).exists():
            self.blob(sha256).write_bytes(data)
            self.blob(sha256).chmod(0o444)
        return sha256

    async def manifest(self, model: str, version: int) -> Manifest:
        self.read += 1
        try:
            return self.manifests[model, version]
        except KeyError:
            raise NotFound(f"no manifest of {model} {version}") from None

    async def fetch(self, file: VersionFile, target: Path) -> None:
        self.fetched.append(file.path)
        os.link(self.blob(file.sha256), target)

    def publish(
        self,
        model: str = "digits",
        number: int = 1,
        *,
        files: Mapping[str, bytes] = MODEL,
        beside: Mapping[str, bytes] | None = None,
        config: str = CONFIG,
        physical: str = "",
    ) -> PublishedVersion:
        """Put a version on the shelf; gives its record."""
        paths = {f"{number}/{path}": data for path, data in files.items()}
        paths |= dict(beside or {}) | {"config.pbtxt": config.encode()}
        return self.publish_paths(model, number, paths, config, physical or model)

    def publish_paths(
        self, model: str, number: int, paths: Mapping[str, bytes], config: str, physical: str
    ) -> PublishedVersion:
        files = check_files(
            [VersionFile(path, len(data), self.add(data)) for path, data in paths.items()]
        )
        one = Manifest(model, number, physical, "content", "group", files, BY)
        self.manifests[model, number] = one
        return PublishedVersion(
            model, number, VersionState.PUBLISHED, "content", BY, physical=physical, config=config
        )


async def publish(
    storage: ArtifactStorage,
    model: str = "digits",
    number: int = 1,
    *,
    files: Mapping[str, bytes] = MODEL,
    beside: Mapping[str, bytes] = MappingProxyType({}),
    config: str = CONFIG,
) -> PublishedVersion:
    """Put a version into a real storage; gives its record."""
    paths = {f"{number}/{path}": data for path, data in files.items()}
    paths |= {**beside, "config.pbtxt": config.encode()}
    kept = [VersionFile(path, *await storage.add_bytes(data)) for path, data in paths.items()]
    one = Manifest(model, number, model, "content", "group", check_files(kept), BY)
    await storage.put_manifest(one)
    return PublishedVersion(
        model, number, VersionState.PUBLISHED, "content", BY, physical=model, config=config
    )


def tree(folder: Path) -> dict[str, bytes]:
    """What Triton could read there: every file of a model, by its path."""
    while True:
        try:
            return {
                str(path.relative_to(folder)): path.read_bytes()
                for path in sorted(folder.rglob("*"))
                if path.is_file() and not path.relative_to(folder).parts[0].startswith(".")
            }
        except FileNotFoundError:  # it is being taken away: look again
            continue


def drafts(folder: Path) -> list[str]:
    """What is being built or taken away."""
    return sorted(path.name for path in (folder / ".delivery/drafts").glob("*"))
