"""The access log: which calls are written down, as what, and how much of it."""

import json
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import Clock, call, choice, replica

from serve.app.access_log import MOST, AccessLog
from serve.app.access_log_file import LogFile
from serve.core.calls import Account, Verb
from serve.proxy.journal import EndedCall

NOON = 1907755200.25  # seconds of the epoch: 2030-06-15
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


class Scene:
    def __init__(self, path: Path, draw: Callable[[], float] = lambda: 0.5) -> None:
        self.path = path
        self.clock = Clock()
        self.log = AccessLog(
            LogFile(path), share=0.01, draw=draw, clock=self.clock, wall=Clock(NOON)
        )

    def write(self, **more: Any) -> None:
        given = {"code": "200", "seconds": 0.005, "error": "", "tries": 1, "good": True, "key": ""}
        given |= more
        asked, code = given.pop("call", call()), given.pop("code")
        self.log.write(EndedCall(asked, choice(), replica(), code, **given))

    def lines(self) -> list[dict[str, Any]]:
        self.log.flush()
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def dropped(self) -> float:
        (family,) = self.log.collect()
        return family.samples[0].value


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    one = Scene(tmp_path / "access.log")
    yield one
    one.log.close()


class Origin:
    """A listener's side of a call."""

    def account(self) -> Account:
        traceparent = f"00-{TRACE}-00f067aa0ba902b7-01"
        return Account("r-1", traceparent, "10.0.0.7:5123", 64, 128, 0.004)


def test_a_line_says_what_became_of_a_call(scene: Scene) -> None:
    asked = call(protocol="grpc", model="m", selector="1")
    asked.origin = Origin()
    asked.credential = b"Bearer sg_abcde_not-to-be-seen-anywhere"
    scene.write(call=asked, code="OK", seconds=0.0051234567, key="abcde")
    assert scene.lines() == [
        {
            "time": "2030-06-15T12:00:00.250Z",
            "protocol": "grpc",
            "verb": "infer",
            "model": "m",
            "version": "1",
            "by": "number",
            "generation": 0,
            "replica": "a",
            "tries": 1,
            "code": "OK",
            "error": "",
            "received": 64,
            "answered": 128,
            "seconds": 0.005123,
            "upstream_seconds": 0.004,
            "added_seconds": 0.001123,
            "request_id": "r-1",
            "trace_id": TRACE,
            "key": "abcde",
            "peer": "10.0.0.7:5123",
        }
    ]
    assert "not-to-be-seen" not in scene.path.read_text()


def test_an_error_of_ours_takes_the_place_of_a_status(scene: Scene) -> None:
    asked = call(Verb.METADATA, model='no"such\nmodel\ud800')
    error = "unknown_model"
    scene.log.write(EndedCall(asked, None, replica(""), error, 1e-5, error=error))
    (line,) = scene.lines()
    assert (line["code"], line["error"], line["version"]) == ("", "unknown_model", "")
    assert line["model"] == 'no"such\nmodel\ud800'
    assert line["upstream_seconds"] is None and line["added_seconds"] is None


def test_good_calls_are_taken_by_their_share(tmp_path: Path) -> None:
    log = Scene(tmp_path / "log", random.Random(7).random).log
    assert 70 < sum(log.takes() for _ in range(10_000)) < 130


def test_a_storm_of_failed_calls_is_cut_and_counted(scene: Scene) -> None:
    for _ in range(MOST + 50):
        scene.write(good=False, code="500")
    assert (len(scene.lines()), scene.dropped()) == (MOST, 50)
    scene.clock.now += 1.0
    scene.write(good=False, code="500")
    assert (len(scene.lines()), scene.dropped()) == (MOST + 1, 50)


# --- the file -------------------------------------------------------------------------------------


def test_nothing_is_written_before_the_flush_and_all_of_it_at_the_end(scene: Scene) -> None:
    scene.write()
    assert not scene.path.exists()
    scene.log.close()
    assert len(scene.path.read_text().splitlines()) == 1


def test_several_workers_append_to_one_file_which_is_made_anew_when_it_was_rotated_away(
    scene: Scene, tmp_path: Path
) -> None:
    another = Scene(scene.path)
    for code, rotated in (("200", "access.log.1"), ("201", "access.log.2")):
        for one in (scene, another, scene, another):
            one.write(code=code)
            one.log.flush()
        assert [line["code"] for line in scene.lines()] == [code] * 4
        scene.path.rename(tmp_path / rotated)
    another.log.close()


def test_a_file_that_cannot_be_written_is_one_warning_until_it_can(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "servegate")
    folder = tmp_path / "later"
    scene = Scene(folder / "access.log")
    for _ in range(3):
        scene.write()
        scene.log.flush()
    assert scene.dropped() == 3
    assert len(caplog.messages) == 1 and "cannot write to" in caplog.messages[0]
    folder.mkdir()
    scene.write()
    assert len(scene.lines()) == 1
    assert caplog.messages[1:] == [f"the access log <LogFile {scene.path}> is writable again"]
    scene.log.close()


def test_a_full_disk_loses_lines_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(Path("/dev/full"))
    scene.write()
    scene.log.flush()
    assert scene.dropped() == 1
    assert "No space left on device" in caplog.text
    scene.log.close()


def test_a_pipe_that_nobody_reads_does_not_hold_anybody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    scene = Scene(path)
    for _ in range(30):
        for _ in range(20):
            scene.write()
        scene.clock.now += 1
        scene.log.flush()
    assert scene.dropped() > 0 and len(caplog.messages) == 1
    taken = os.read(reader, 1 << 20)
    scene.write(code="201")
    scene.log.flush()
    whole = [json.loads(line) for line in taken.splitlines()[:-1]]
    assert len(whole) > 100
    last = os.read(reader, 1 << 20).splitlines()[-1]
    assert json.loads(last)["code"] == "201"  # on a line of its own
    os.close(reader)
    scene.log.close()
