"""Finding the wheel's Triton, the words for everything that can be wrong, the backend directory."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from refusals import refusal

from serve.core.errors import TritonMissing
from serve.triton.backend_directory import build_backend_directory
from serve.triton.installation import ELSEWHERE, Installation, MachineFacts, problems


def wheel(folder: Path) -> Path:
    """A folder that looks like site-packages with a sound wheel in it; answers the module's."""
    server = folder / "pytriton" / "tritonserver"
    for path in (
        server / "bin" / "tritonserver",
        server / "backends" / "python" / "libtriton_python.so",
        server / "backends" / "python" / "triton_python_backend_utils.py",
        server / "caches" / "local" / "libtritoncache_local.so",
        server / "python_backend_stubs" / "3.11" / "triton_python_backend_stub",
        folder / "nvidia_pytriton.libs" / "libtritonserver.so",
        folder / "bin" / "python3",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(path.name)
    return folder / "pytriton"


def facts(folder: Path) -> MachineFacts:
    """A machine on which nothing is wrong."""
    return MachineFacts(
        system="Linux",
        machine="x86_64",
        libc="glibc 2.35",
        python=(3, 11),
        executable=folder / "bin" / "python",
        prefixes=(folder,),
        numpy="1.26.4",
        wheel="0.7.0",
        package=wheel(folder),
        libdir=folder / "lib",
        libpython=folder / "lib",
        linker_has_libpython=False,
    )


def test_a_sound_wheel_is_found(tmp_path: Path) -> None:
    server = tmp_path / "pytriton" / "tritonserver"
    assert Installation.find(facts(tmp_path)) == Installation(
        version="0.7.0",
        python=(3, 11),
        binary=server / "bin" / "tritonserver",
        libraries=tmp_path / "nvidia_pytriton.libs",
        python_libraries=tmp_path / "lib",
        python_folder=tmp_path / "bin",
        python_backend=server / "backends" / "python",
        stub=server / "python_backend_stubs" / "3.11" / "triton_python_backend_stub",
        caches=server / "caches",
    )


def test_what_is_wrong_is_told_with_a_way_out(tmp_path: Path) -> None:
    sound = facts(tmp_path)
    missing = Path("/nowhere/bin/python3.11")
    arm = {"system": "Darwin", "machine": "arm64", "libc": ""}
    home = {"prefixes": (Path("/usr"),), "package": Path("/home/me/.local/pytriton")}
    for wrong, why, try_this in (
        (arm, "the nvidia-pytriton wheel is for Linux x86-64, and this is Darwin arm64", ELSEWHERE),
        ({"libc": "glibc 2.31"}, "needs glibc 2.35 or newer, and this is glibc 2.31", "Debian 12"),
        ({"libc": ""}, "needs glibc 2.35 or newer, and this is another C library", "Debian 12"),
        ({"package": None, "wheel": None}, "which contains it, is missing", "[local]"),
        ({"numpy": "2.1.0"}, "with numpy 2, models get empty tensors", "'numpy>=1.26,<2'"),
        ({"numpy": None}, "numpy is missing", "'numpy>=1.26,<2'"),
        (
            {"libpython": None, "libdir": Path("/opt/lib")},
            "libpython3.11.so.1.0 is neither in /opt/lib nor known to ldconfig",
            "apt-get install libpython3.11",
        ),
        (home, "/home/me/.local/pytriton is outside of /usr", "-m venv .venv"),
        ({"executable": missing}, "has no `python3`", "-m venv .venv"),
        ({"python": (3, 10)}, "this is Python 3.10, and 3.11 or 3.12 is needed", "-m venv .venv"),
        ({"python": (3, 13)}, "this is Python 3.13, and 3.11 or 3.12 is needed", "-m venv .venv"),
    ):
        error = refusal(TritonMissing, Installation.find, replace(sound, **wrong))
        assert why in error.why and try_this in error.try_this, (wrong, str(error))
    stub = Installation.find(sound).stub
    stub.unlink()
    assert str(refusal(TritonMissing, Installation.find, sound)) == (
        f"the installed Triton is incomplete: {stub} is missing in nvidia-pytriton 0.7.0. "
        "Try: pip install --force-reinstall nvidia-pytriton==0.7.0"
    )


def test_all_problems_are_told_the_most_fundamental_first(tmp_path: Path) -> None:
    known = replace(facts(tmp_path), libc="glibc 2.31", numpy="2.0", libpython=None)
    assert [error.why.split(",")[0] for error in problems(known)] == [
        "the nvidia-pytriton wheel needs glibc 2.35 or newer",
        "numpy 2.0 is installed",
        f"libpython3.11.so.1.0 is neither in {tmp_path}/lib nor known to ldconfig",
    ]


def test_the_environment_puts_ours_first_and_keeps_the_rest(tmp_path: Path) -> None:
    known = replace(facts(tmp_path), libpython=None, linker_has_libpython=True)
    alone = Installation.find(known).environment({})
    assert alone["LD_LIBRARY_PATH"] == str(tmp_path / "nvidia_pytriton.libs")
    inherited = {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/cuda/lib", "AWS_REGION": "eu-west-1"}
    assert Installation.find(facts(tmp_path)).environment(inherited) == {
        "ORT_DISABLE_TELEMETRY": "1",
        "PATH": f"{tmp_path}/bin:/usr/bin",
        "LD_LIBRARY_PATH": f"{tmp_path}/nvidia_pytriton.libs:{tmp_path}/lib:/cuda/lib",
        "AWS_REGION": "eu-west-1",
    }


# --- the backend directory -----------------------------------------------------------------------


def our_backends(folder: Path, content: str = "pass") -> Path:
    model = folder / "ours" / "onnxruntime" / "model.py"
    model.parent.mkdir(parents=True, exist_ok=True)
    model.write_text(content)
    (model.parent / "__pycache__").mkdir(exist_ok=True)
    (model.parent / "__pycache__" / "model.pyc").write_text(os.urandom(4).hex())
    return folder / "ours"


def test_the_backend_directory_holds_python_its_stub_and_ours(tmp_path: Path) -> None:
    draft = tmp_path / "state" / "triton" / "backends-draft-abc"  # what a killed build left
    draft.mkdir(parents=True)
    found = Installation.find(facts(tmp_path))
    built = build_backend_directory(found, tmp_path / "state", ours=our_backends(tmp_path))
    assert sorted(str(path.relative_to(built)) for path in built.rglob("*")) == [
        "onnxruntime",
        "onnxruntime/model.py",
        "python",
        "python/libtriton_python.so",
        "python/triton_python_backend_stub",
        "python/triton_python_backend_utils.py",
    ]
    assert os.access(built / "python" / "triton_python_backend_stub", os.X_OK)
    assert list(built.parent.iterdir()) == [built]


def test_a_changed_backend_wheel_or_python_makes_a_new_directory_and_nothing_else_does(
    tmp_path: Path,
) -> None:
    found, state = Installation.find(facts(tmp_path)), tmp_path / "state"
    first = build_backend_directory(found, state, ours=our_backends(tmp_path))
    made = first.stat().st_ino
    again = build_backend_directory(found, state, ours=our_backends(tmp_path))
    assert (again, again.stat().st_ino) == (first, made)
    ours = our_backends(tmp_path, content="changed")
    second = build_backend_directory(found, state, ours=ours)
    third = build_backend_directory(replace(found, version="0.8.0"), state, ours=ours)
    fourth = build_backend_directory(replace(found, python=(3, 12)), state, ours=ours)
    assert len({first, second, third, fourth}) == 4
    assert list(fourth.parent.iterdir()) == [fourth]


@pytest.mark.triton
def test_the_triton_of_this_environment_is_found() -> None:
    found = Installation.find(MachineFacts.here())
    assert os.access(found.binary, os.X_OK)
    assert (found.python_folder / "python3").exists()
