"""`servegate history` against an admin API: what is printed, what is asked, and exit codes."""

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from admin.api.admin_scene import application, plane, send
from cli.commands import SERVEGATE, Done, servegate
from cli.http_servers import serving_app


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """An admin API: revisions 1 and 2 are routes."""
    app = application(plane(tmp_path))
    for weights in ({"1": 100}, {"1": 60, "2": 40}):
        send(app, "PUT", "/api/routes/m", body={"split": weights}, servegate_author="ada")
    with serving_app(app) as url:
        yield url


def run(url: str, *arguments: str) -> Done:
    return servegate("history", *arguments, "--admin-url", url)


def on_a_terminal(url: str, *arguments: str, keys: str = "") -> str:
    """What a person sees who types these keys."""
    ours, theirs = pty.openpty()
    os.write(ours, keys.encode())
    child = subprocess.Popen(
        [str(SERVEGATE), "history", *arguments, "--admin-url", url],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
    )
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # the terminal is gone with its last process
        pass
    child.wait(60)
    os.close(ours)
    return seen.decode()


def test_changes_are_a_table_for_people_and_json_for_programs(url: str) -> None:
    shown = run(url, "show").stdout.splitlines()
    assert shown[0].split("\t") == ["revision", "at", "author", "kind", "key", "change", "reason"]
    assert shown[1].split("\t") == [
        *("2", "2023-11-14 22:13:20Z", "ada", "route", "m"),
        *("split.1: 100 → 60; split.2: (nothing) → 40", ""),
    ]
    [first] = json.loads(run(url, "show", "--before", "2", "--json").stdout)
    assert first["revision"] == 1
    assert json.loads(run(url, "show", "--kind", "label", "--json").stdout) == []


def test_differences_are_plain_lines_in_a_pipe(url: str) -> None:
    assert run(url, "diff", "2").stdout == "split.1: 100 → 60\nsplit.2: (nothing) → 40\n"
    assert run(url, "diff", "2", "1").stdout == "split.1: 60 → 100\nsplit.2: 40 → (nothing)\n"
    same = run(url, "diff", "1", "1")
    assert (same.stdout, same.stderr) == ("", "no differences\n")


def test_going_back_needs_a_yes_where_nobody_can_be_asked(url: str) -> None:
    refused = run(url, "restore", "1")
    assert refused.returncode == 2 and "--yes" in refused.stderr
    assert "split.1: 60 → 100" in refused.stderr
    done = run(url, "restore", "1", "--yes", "--reason", "too slow")
    assert done.returncode == 0 and "restored route m to revision 1" in done.stderr
    assert "  split.1: 60 → 100\n" in done.stderr
    assert json.loads(run(url, "show", "--json").stdout)[0]["reason"] == (
        "restored revision 1: too slow"
    )


def test_differences_are_coloured_and_going_back_is_asked_on_a_terminal(url: str) -> None:
    assert "split.1: \x1b[31m100\x1b[0m → \x1b[32m60\x1b[0m" in on_a_terminal(url, "diff", "2")
    seen = on_a_terminal(url, "undo", "2", keys="n\n")
    assert "this undoes revision 2:" in seen and "split.1: 60 → 100" in seen
    assert len(json.loads(run(url, "show", "--json").stdout)) == 2
    seen = on_a_terminal(url, "undo", "2", keys="y\n")
    assert "undid revision 2 (route m); " in seen
    assert len(json.loads(run(url, "show", "--json").stdout)) == 3


def test_restoring_the_state_that_is_there_warns_and_changes_nothing(url: str) -> None:
    for verb in ("rollback", "restore"):
        done = run(url, verb, "2", "--yes")
        assert (done.returncode, done.stderr) == (
            0,
            "warning: nothing changed: this is already its state\n"
            "to undo revision 2: servegate history undo 2\n",
        )
    assert len(json.loads(run(url, "show", "--json").stdout)) == 2


def test_an_undo_that_cannot_be_says_why(url: str) -> None:
    for words, code in (
        ("undo 99 --yes", 3),
        ("restore 99 --yes", 3),
        ("diff 99", 3),
        ("diff 0", 2),
    ):
        done = run(url, *words.split())
        assert done.returncode == code and "Traceback" not in done.stderr
    assert run(url, "undo", "2", "--yes").returncode == 0
    done = run(url, "undo", "2", "--yes")
    assert done.returncode == 5
    assert "revision 3 by" in done.stderr and "servegate history undo 3 first" in done.stderr
    assert "servegate history restore 1" in done.stderr
