"""`servegate compare`: what is asked, what is shown, and when it fails."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Done, servegate
from cli.http_servers import Request, answering

from serve.cli.compare import FailCondition, measured
from serve.core.errors import Invalid

SAME = {"equal": 1.0, "max_abs": 0.0, "max_rel": 0.0, "cosine": 1.0, "agreement": 1.0}
SAME |= {"infinite": False, "differing": [], "refused": ""}


def output(value: float, **more: Any) -> dict[str, Any]:
    top = [[{"index": 1, "label": "dog", "value": value}]]
    page = {"name": "y", "datatype": "FP32", "shape": [1, 2], "values": [[0.1, value]]}
    return page | {"truncated": False, "top": top, "min": 0.0, "max": 1.0, "mean": 0.5} | more


def side(name: str, version: str, *outputs: Any, error: Any = None) -> dict[str, Any]:
    page = {"side": name, "asked": version, "version": "" if error else version, "error": error}
    return page | {"seconds": None if error else 0.0061, "outputs": list(outputs)}


def made(**more: Any) -> dict[str, Any]:
    sides = [side("a", "1", output(0.9)), side("b", "2", output(0.7))]
    page = {"id": "0abc", "model": "m", "notes": ["a note"], "sides": sides}
    return page | {"difference": {"y": SAME | {"max_abs": 0.2}}} | more


class Admin:
    """Answers what is scripted, and notes what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.answer = made()
        self.asked: list[tuple[str, Any]] = []

    def respond(self, request: Request) -> tuple[int, Any]:
        self.asked.append((request.path, json.loads(request.body)))
        return 201, self.answer


@pytest.fixture
def admin() -> Iterator[Admin]:
    one = Admin()
    with answering(one.respond) as one.url:
        yield one


def compare(admin: Admin, *words: str, folder: Path | None = None) -> Done:
    return servegate("compare", *words, "--admin-url", admin.url, folder=folder)


def test_both_answers_stand_side_by_side_with_their_permalink(admin: Admin) -> None:
    done = compare(admin, "m@1", "m@2", "--input", "random", "--seed", "7", "--batch", "3")
    assert done.returncode == 0, done.stderr
    first, _, differences = done.stdout.partition("\n\n")
    assert first.splitlines() == [
        "output\t\tm@1\tm@2",
        "y\trow 0 #1\tdog 0.9\tdog 0.7",
        "latency\tround trip\t6.1 ms\t6.1 ms",
    ]
    assert differences.splitlines()[1] == "y\t1\t0.2\t0\t1\t"
    assert done.stderr.splitlines() == ["a note", f"stored: {admin.url}/runs/0abc"]
    path, body = admin.asked[-1]
    assert path == "/api/tries"
    assert body["inputs"] == {"": {"form": "random", "data": "", "name": ""}}
    assert (body["a"], body["b"], body["seed"], body["batch"]) == ("1", "2", 7, 3)


def test_files_are_sent_with_their_forms_and_names(admin: Admin, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2\n")
    words = ("m:stable", "m", "--input", "x=@rows.csv", "--input", "z=random", "--via", "grpc")
    assert compare(admin, *words, folder=tmp_path).returncode == 0
    _, body = admin.asked[-1]
    assert body["inputs"]["x"] == {"form": "csv", "data": "MSwyCg==", "name": "rows.csv"}
    assert (body["a"], body["b"], body["via"]) == ("stable", "", "grpc")


def test_a_condition_that_holds_is_a_failure(admin: Admin) -> None:
    codes = {"max_abs>0.1": 7, "max_abs > 0.3": 0, "agreement<0.97": 0, "cosine<=1": 7}
    for condition, code in codes.items():
        done = compare(admin, "m@1", "m@2", "--fail-if", condition, "--json")
        assert done.returncode == code, done.stderr
        assert json.loads(done.stdout)["url"] == f"{admin.url}/runs/0abc"
        assert ("output 'y': " in done.stderr) == bool(code)


def test_a_side_or_an_output_without_a_comparison_is_a_failure(admin: Admin) -> None:
    admin.answer = made(difference={"y": SAME | {"refused": "shapes differ"}})
    assert compare(admin, "m@1", "m@2").returncode == 0
    done = compare(admin, "m@1", "m@2", "--fail-if", "max_abs>1e9")
    assert done.returncode == 7 and "shapes differ" in done.stderr
    error = {"code": "unknown_version", "what": "there is no version 2", "why": "", "try_this": ""}
    sides = [side("a", "1", output(0.9)), side("b", "2", error=error)]
    admin.answer = made(sides=sides, difference=None)
    done = compare(admin, "m@1", "m@2")
    assert done.returncode == 7
    assert "error\t\t\tthere is no version 2" in done.stdout
    assert "version B: there is no version 2" in done.stderr


def test_outputs_without_scores_show_their_first_values(admin: Admin) -> None:
    plain = output(0.5, top=[], values=list(range(20)), truncated=True)
    admin.answer = made(sides=[side("a", "1", plain), side("b", "2", plain)])
    line = compare(admin, "m@1", "m@2").stdout.splitlines()[1]
    assert line.split("\t")[2] == "FP32 [1, 2]: 0, 1, 2, 3, 4, 5, 6, 7, …"


def test_what_cannot_be_asked_is_a_usage_error(admin: Admin) -> None:
    for words in (
        "m@1 other@1",
        "m@1 m@2 --fail-if speed<3",
        "m@1 m@2 --fail-if max_abs>1e",
        "m@1 m@2 --input random --input random",
        "m@1 m@2 --input x=@missing.npy",
        "m@1 m@2 --via smtp",
    ):
        assert compare(admin, *words.split()).returncode == 2, words


def test_conditions_are_read_and_measured() -> None:
    assert str(FailCondition.parse(" max_abs >= 1e-3 ")) == "max_abs>=0.001"
    with pytest.raises(Invalid, match="is not a valid condition"):
        FailCondition.parse("max_abs")
    infinite = SAME | {"max_abs": None, "infinite": True}
    assert FailCondition.parse("max_abs>1e300").finding("y", infinite)
    assert measured(SAME | {"agreement": 0.5}, "agreement") == 0.5
    assert measured(SAME | {"agreement": None, "equal": 0.25}, "agreement") == 0.25
    assert measured(SAME | {"cosine": None}, "cosine") is None
