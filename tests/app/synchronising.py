"""What the process of an agent does."""

import os
from multiprocessing.connection import Connection
from pathlib import Path

from serve.cli.main import main


def synchronise(
    talk: Connection, folder: Path, told: Path, words: list[str], variables: dict[str, str]
) -> None:
    """`servegate sync` in a folder, with these variables; stderr goes to a file."""
    os.environ.update(variables)
    os.chdir(folder)
    descriptor = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    main(["sync", *words])
