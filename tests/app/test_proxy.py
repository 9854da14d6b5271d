"""What a parent passes on of its children's output."""

import contextlib

import pytest

from serve.app.proxy import relay_line


def test_a_line_of_a_child_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    relay_line("it begins")
    assert capsys.readouterr().err == "it begins\n"


def test_a_line_is_lost_when_stderr_is_on_a_full_disk() -> None:
    full = open("/dev/full", "w")  # noqa: PTH123, SIM115 - closing it fails, too
    with contextlib.redirect_stderr(full):
        relay_line("it is lost")
    with contextlib.suppress(OSError):
        full.close()
