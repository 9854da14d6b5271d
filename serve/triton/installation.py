"""Finds the Triton that the nvidia-pytriton wheel ships, or says what stands in the way.

The wheel holds the server, its Python backend, and for every Python version a *stub*: the program
in which Triton runs Python models and Python-based backends. What the stub needs, as seen:

* It loads `libpythonX.Y.so.1.0`, of the X.Y that it was built for.
* It runs Python in isolated mode: PYTHONPATH, PYTHONHOME and the user's site-packages mean nothing
  to it. It takes its packages from the environment of the first `python3` on PATH, so the folder
  of the running interpreter has to come first there.
* With numpy 2 it hands out empty tensors.

The checks are plain functions of `MachineFacts`; each answers an error, or None.
"""

import ctypes.util
import importlib.metadata
import importlib.util
import platform
import sys
import sysconfig
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from serve.core.errors import CannotStart, TritonMissing

LOCAL_EXTRA = "pip install '.[local]' in a checkout of Servegate"
ELSEWHERE = (
    "use a Triton that runs elsewhere, e.g. `docker run --rm -p 9000:8000 -p 9001:8001 -p"
    " 9002:8002 -v $PWD/models:/models nvcr.io/nvidia/tritonserver:24.10-py3 tritonserver"
    " --model-repository=/models --model-control-mode=explicit` and then"
    " `servegate up --triton 127.0.0.1:9000:9001:9002`"
)
PYTHONS = ((3, 11), (3, 12))
OLDEST_GLIBC = (2, 35)


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """What there is to know about this machine and the running Python environment."""

    system: str  # as platform.system() says it
    machine: str
    libc: str  # "glibc 2.36"; empty where it is another one
    python: tuple[int, int]
    executable: Path  # not resolved: a virtual environment is known by the place of this link
    prefixes: tuple[Path, ...]  # where the stub's Python finds packages: environment and base
    numpy: str | None  # version, if installed
    wheel: str | None  # version of nvidia-pytriton, if installed
    package: Path | None  # the folder of the module pytriton
    libdir: Path  # where the interpreter says that its shared library is
    libpython: Path | None  # the folder in which it is, if it is in one of the likely ones
    linker_has_libpython: bool

    @classmethod
    def here(cls) -> "MachineFacts":
        """The facts of this process. Imports nothing; may run `ldconfig`."""
        version = sys.version_info[:2]
        package = importlib.util.find_spec("pytriton")
        libdir = Path(sysconfig.get_config_var("LIBDIR") or "/usr/lib")
        libpython = _find_libpython(libdir, _library(version))
        return cls(
            system=platform.system(),
            machine=platform.machine(),
            libc=" ".join(platform.libc_ver()).strip(),
            python=version,
            executable=Path(sys.executable),
            prefixes=(Path(sys.prefix), Path(sys.base_prefix)),
            numpy=_version("numpy"),
            wheel=_version("nvidia-pytriton"),
            package=Path(package.origin).parent if package and package.origin else None,
            libdir=libdir,
            libpython=libpython,
            linker_has_libpython=libpython is None and _linker_has(_library(version)),
        )


def check_platform(facts: MachineFacts) -> CannotStart | None:
    """The wheel is built for one platform."""
    if (facts.system, facts.machine) == ("Linux", "x86_64"):
        return None
    return TritonMissing(
        "Triton cannot run on this machine",
        why=f"the nvidia-pytriton wheel is for Linux x86-64, and this is {facts.system} "
        f"{facts.machine}",
        try_this=ELSEWHERE,
    )


def check_libc(facts: MachineFacts) -> CannotStart | None:
    """Older C libraries lack symbols that the server was linked with."""
    name, _, version = facts.libc.partition(" ")
    if facts.system != "Linux":
        return None
    if name == "glibc" and _numbers(version) >= OLDEST_GLIBC:
        return None
    return TritonMissing(
        "Triton cannot run on this machine",
        why=f"the nvidia-pytriton wheel needs glibc 2.35 or newer, and this is "
        f"{facts.libc or 'another C library'}",
        try_this="use Ubuntu 22.04, Debian 12 or newer; or " + ELSEWHERE,
    )


def check_python(facts: MachineFacts) -> CannotStart | None:
    """Python models and our backends run in a stub that is built for one Python version."""
    if facts.python in PYTHONS:
        return None
    return TritonMissing(
        "Triton's Python backend cannot run in this Python",
        why="this is Python {}.{}, and 3.11 or 3.12 is needed".format(*facts.python),
        try_this="python3.12 -m venv .venv && .venv/bin/" + LOCAL_EXTRA,
    )


def check_wheel(facts: MachineFacts) -> CannotStart | None:
    """The wheel is an optional part of the installation."""
    if facts.package is not None and facts.wheel is not None:
        return None
    return TritonMissing(
        "Triton is not installed",
        why="the package nvidia-pytriton, which contains it, is missing",
        try_this=f"{LOCAL_EXTRA}; or {ELSEWHERE}",
    )


def check_numpy(facts: MachineFacts) -> CannotStart | None:
    """The stub was compiled against numpy 1."""
    if facts.numpy is not None and _numbers(facts.numpy) < (2,):
        return None
    return TritonMissing(
        "Triton's Python backend cannot work in this environment",
        why="numpy is missing"
        if facts.numpy is None
        else f"numpy {facts.numpy} is installed, and with numpy 2, models get empty tensors",
        try_this="pip install 'numpy>=1.26,<2'",
    )


def check_environment(facts: MachineFacts) -> CannotStart | None:
    """The isolated Python of the stub has to find the same packages as this process."""
    why = ""
    if facts.package and not any(facts.package.is_relative_to(root) for root in facts.prefixes):
        why = f"{facts.package} is outside of {facts.prefixes[0]}, where an isolated Python looks"
    elif not (facts.executable.parent / "python3").exists():
        why = f"{facts.executable.parent} has no `python3`"
    if not why:
        return None
    return TritonMissing(
        "Triton's Python backend cannot find this Python environment",
        why=why,
        try_this="use a virtual environment: python3.12 -m venv .venv && .venv/bin/" + LOCAL_EXTRA,
    )


def check_library(facts: MachineFacts) -> CannotStart | None:
    """Many Pythons are built without the shared library."""
    library = _library(facts.python)
    if facts.libpython is not None or facts.linker_has_libpython:
        return None
    return TritonMissing(
        "Triton's Python backend cannot start",
        why=f"{library} is neither in {facts.libdir} nor known to ldconfig",
        try_this="apt-get install libpython{}.{}, or use a Python that was built with".format(
            *facts.python
        )
        + " --enable-shared",
    )


def check_files(facts: MachineFacts) -> CannotStart | None:
    """The wheel is whole."""
    if facts.package is None:
        return None
    found = Installation.of(facts, facts.package)
    for path in (found.binary, found.libraries, found.python_backend, found.stub):
        if not path.exists():
            return TritonMissing(
                "the installed Triton is incomplete",
                why=f"{path} is missing in nvidia-pytriton {facts.wheel}",
                try_this="pip install --force-reinstall nvidia-pytriton==0.7.0",
            )
    return None


CHECKS: tuple[Callable[[MachineFacts], CannotStart | None], ...] = (
    check_platform,
    check_libc,
    check_python,
    check_wheel,
    check_numpy,
    check_environment,
    check_library,
    check_files,
)


def problems(facts: MachineFacts) -> tuple[CannotStart, ...]:
    """Everything that stands in the way, the most fundamental first."""
    return tuple(error for check in CHECKS if (error := check(facts)) is not None)


@dataclass(frozen=True, slots=True)
class Installation:
    """The parts of an installed Triton."""

    version: str  # of the wheel
    python: tuple[int, int]
    binary: Path
    libraries: Path  # the shared libraries of server and backends
    python_libraries: Path | None  # the folder of libpython, where the linker does not know it
    python_folder: Path  # the folder of the interpreter that the stub has to find
    python_backend: Path
    stub: Path
    caches: Path | None  # response caches

    @classmethod
    def find(cls, facts: MachineFacts) -> "Installation":
        """The installed Triton, or the first of the `problems` raised."""
        for error in problems(facts):
            raise error
        assert facts.package is not None  # says check_wheel
        return cls.of(facts, facts.package)

    @classmethod
    def of(cls, facts: MachineFacts, package: Path) -> "Installation":
        """Where everything is in a sound wheel; only the caches are looked for."""
        server = package / "tritonserver"
        minor = "{}.{}".format(*facts.python)
        caches = server / "caches"
        return cls(
            version=facts.wheel or "",
            python=facts.python,
            binary=server / "bin" / "tritonserver",
            libraries=package.parent / "nvidia_pytriton.libs",
            python_libraries=facts.libpython,
            python_folder=facts.executable.parent,
            python_backend=server / "backends" / "python",
            stub=server / "python_backend_stubs" / minor / "triton_python_backend_stub",
            caches=caches if caches.is_dir() else None,
        )

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """What Triton needs on top of an inherited environment; ONNX Runtime tells nobody of it."""
        libraries = [str(self.libraries)]
        libraries += [str(self.python_libraries)] if self.python_libraries else []
        libraries += filter(None, [inherited.get("LD_LIBRARY_PATH")])
        path = [str(self.python_folder), *filter(None, [inherited.get("PATH")])]
        return {
            "ORT_DISABLE_TELEMETRY": "1",
            **inherited,
            "LD_LIBRARY_PATH": ":".join(libraries),
            "PATH": ":".join(path),
        }


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _find_libpython(libdir: Path, library: str) -> Path | None:
    """The folder of libpython; some builds move after sysconfig has written down LIBDIR."""
    multiarch = str(sysconfig.get_config_var("MULTIARCH") or "")
    candidates = (libdir, libdir / multiarch, Path(sys.base_prefix) / "lib")
    return next((folder for folder in candidates if (folder / library).exists()), None)


def _linker_has(library: str) -> bool:
    name = library.removeprefix("lib").partition(".so")[0]
    return ctypes.util.find_library(name) == library


def _library(python: tuple[int, int]) -> str:
    return "libpython{}.{}.so.1.0".format(*python)


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `1.26.4rc1` is (1, 26)."""
    numbers = []
    for part in version.split("."):
        if not part.isdecimal():
            break
        numbers.append(int(part))
    return tuple(numbers)
