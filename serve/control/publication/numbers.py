"""What a version is called: its number, its name in Triton, and its files under that number.

A name in Triton stands for one group: a canonical configuration with the files beside it, and the
same flavours. It is the model's own name unless a folder of the plain repository or a living
version of another group has it, and does not change once the version is checked.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from serve.control.publication.records import LIVING
from serve.control.versions import PublishedVersion
from serve.core.errors import CheckFailed
from serve.core.names import LONGEST_NAME, physical_name
from serve.core.versions import CONFIG, Layout, Manifest, VersionFile


def next_number(versions: Iterable[PublishedVersion], plain: Iterable[int]) -> int:
    """One above all that a model ever had, given to versions or found in the plain repository."""
    return 1 + max([0, *(version.number for version in versions), *plain])


def name_in_triton(
    model: str, group: str, versions: Iterable[PublishedVersion], has_plain: Callable[[str], bool]
) -> str:
    """The name for a version of this group, given all versions of all models."""
    living = [version for version in versions if version.physical and version.state in LIVING]
    for version in living:
        if version.model == model and version.group == group:
            return version.physical
    taken = {version.physical for version in living}
    names = (model, physical_name(model, group))
    for name in names:
        if len(name) <= LONGEST_NAME and name not in taken and not has_plain(name):
            return name
    raise CheckFailed(
        f"no Triton name is free for model '{model}'",
        [f"{' and '.join(names)} are taken, or longer than {LONGEST_NAME} characters"],
        try_this="choose another model name",
    )


def manifest_of(
    version: PublishedVersion, files: Sequence[VersionFile], config: VersionFile
) -> Manifest:
    """The manifest of a checked version: the files of its upload under its own number."""
    uploaded = f"{Layout.of(files).number}/"
    own = f"{version.number}/"
    moved = [
        replace(file, path=own + file.path.removeprefix(uploaded))
        if file.path.startswith(uploaded)
        else file
        for file in files
        if file.path != CONFIG
    ]
    return Manifest(
        version.model,
        version.number,
        version.physical,
        version.content,
        version.group,
        tuple(sorted([*moved, config])),
        version.provenance,
    )
