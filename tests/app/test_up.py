"""What the parent says before it starts anything, and what it passes on of its children."""

import contextlib

import pytest

from serve.app.proxy import relay_line
from serve.app.up import warning_of_management
from serve.settings import Settings

TRITON = ("127.0.0.1:1:2:3",)


def test_management_without_a_place_for_models_opens_less_and_says_so() -> None:
    opened = {"allow_management": True, "triton": TRITON, "model_repo": ""}
    warning = warning_of_management(Settings(**opened, delivery="folder"))
    assert "--allow-management does not allow loading and unloading" in warning
    for changed in (
        {"delivery": "agents"},
        {"allow_management": False},
        {"model_repo": "models"},
        {"triton": ()},
    ):
        assert warning_of_management(Settings(**opened | changed)) == "", changed


def test_a_line_of_a_child_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    relay_line("it begins")
    assert capsys.readouterr().err == "it begins\n"


def test_a_line_is_lost_when_stderr_is_on_a_full_disk() -> None:
    full = open("/dev/full", "w")  # noqa: PTH123, SIM115 - closing it fails, too
    with contextlib.redirect_stderr(full):
        relay_line("it is lost")
    with contextlib.suppress(OSError):
        full.close()
