"""`servegate model show NAME@V`, `diff`, `pull`, `rm`, `restore`, `gc`, on a fake gateway."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_gateway import FakeGateway, Fault
from typer.testing import CliRunner, Result

from serve.cli.models import app
from serve.cli.output import exit_code
from serve.cli.versions import compare_files
from serve.core.errors import ServegateError
from serve.core.versions import File

CONTENTS = {"config.pbtxt": b'backend: "onnxruntime"', "1/model.onnx": b"model", "labels.txt": b"a"}


@pytest.fixture
def gateway() -> Iterator[FakeGateway]:
    with FakeGateway().running() as running:
        add(running, 1, CONTENTS)
        running.model["labels"] = {"stable": 1}
        yield running


def add(gateway: FakeGateway, number: int, contents: dict[str, bytes], **more: Any) -> None:
    """A version with these files."""
    files = []
    for path, data in contents.items():
        sha256 = hashlib.sha256(data).hexdigest()
        gateway.blobs[sha256] = data
        files.append(File(path, len(data), sha256))
    gateway.add(number, "m", files)
    gateway.versions[number].record.update(more)


def run(gateway: FakeGateway, *words: object) -> Result:
    """One command; what it raises comes out as `main` would tell it."""
    return CliRunner().invoke(app, [*map(str, words), "--admin-url", gateway.url])


def refused(gateway: FakeGateway, *words: object) -> ServegateError:
    result = run(gateway, *words)
    assert isinstance(result.exception, ServegateError)
    return result.exception


@pytest.mark.parametrize("name", ["m@1", "m:stable"])
def test_one_version_is_shown_with_where_it_comes_from(gateway: FakeGateway, name: str) -> None:
    gateway.versions[1].record |= {"tags": {"k": "v"}, "findings": ["no batching"], "size": 12}
    shown = run(gateway, "show", name).stdout
    assert shown.startswith("m@1: ready on a b\n  from: onnx m.onnx by alice, 1970-01-01 00:00Z\n")
    assert "  tags: k=v\n  finding: no batching\n" in shown
    assert "1/model.onnx\t5\t" in shown
    assert json.loads(run(gateway, "show", name, "--json").stdout)["version"] == 1


def test_a_version_of_the_plain_repository_is_shown_as_far_as_it_is_known(
    gateway: FakeGateway,
) -> None:
    gateway.faults.append(Fault("GET", "/versions/1", status=404, code="unknown_version"))
    shown = run(gateway, "show", "m@1").stdout
    assert shown == "m@1: ready on a b\n  from: the gateway's model repository\n"


@pytest.mark.parametrize(
    ("name", "status"), [("m@7", 3), ("m:nobody", 3), ("m@x", 2), ("a/b@1", 2), ("m@", 2)]
)
def test_a_version_that_is_none_is_told_so(gateway: FakeGateway, name: str, status: int) -> None:
    assert exit_code(refused(gateway, "show", name)) == status


def test_two_versions_are_compared_by_files_and_configuration(gateway: FakeGateway) -> None:
    gateway.versions[1].record["config"] = "max_batch_size: 8\ndims: 4"
    changed = {"2/model.onnx": b"other", "config.pbtxt": CONTENTS["config.pbtxt"], "new": b"n"}
    add(gateway, 2, changed, config="max_batch_size: 16\ndims: 4")
    shown = run(gateway, "diff", "m@1", "m@2").stdout
    rows = [line.split("\t")[:2] for line in shown.splitlines()[1:4]]
    assert rows == [["*/model.onnx", "changed"], ["labels.txt", "removed"], ["new", "added"]]
    assert "-max_batch_size: 8\n+max_batch_size: 16\n dims: 4\n" in shown
    page = json.loads(run(gateway, "diff", "m@1", "m@2", "--json").stdout)
    assert page["files"][2]["one"] is None


def test_versions_of_one_content_do_not_differ(gateway: FakeGateway) -> None:
    record = gateway.versions[1].record
    renamed = [file | {"path": file["path"].replace("1/", "9/")} for file in record["files"]]
    assert compare_files(record, record | {"version": 9, "files": renamed}) == []


def test_the_files_of_a_version_are_fetched(gateway: FakeGateway, tmp_path: Path) -> None:
    result = run(gateway, "pull", "m", "--out", tmp_path / "m")
    assert (result.exit_code, result.stdout) == (0, f"{tmp_path / 'm'}\n"), result.stderr
    found = {p.relative_to(tmp_path / "m").as_posix(): p for p in (tmp_path / "m").rglob("*.*")}
    assert {path: file.read_bytes() for path, file in found.items()} == CONTENTS


def test_a_pull_goes_on_with_what_is_missing(gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "1/model.onnx").write_bytes(b"model")
    gateway.faults.append(Fault("GET", "/files/labels.txt", status=503))
    result = run(gateway, "pull", "m@1", "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert not [path for _, path in gateway.asked if path.endswith("/files/1/model.onnx")]
    assert (tmp_path / "labels.txt").read_bytes() == b"a"


def test_a_pull_overwrites_nothing(gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("mine")
    assert exit_code(refused(gateway, "pull", "m@1", "--out", tmp_path)) == 5
    assert (tmp_path / "labels.txt").read_text() == "mine"


def test_bytes_that_are_not_what_was_published_are_thrown_away(
    gateway: FakeGateway, tmp_path: Path
) -> None:
    sha256 = gateway.versions[1].record["files"][1]["sha256"]
    gateway.blobs[sha256] = b"mudel"
    assert refused(gateway, "pull", "m@1", "--out", tmp_path).code == "digest_mismatch"
    assert not list(tmp_path.rglob("model.onnx")) and not list(tmp_path.rglob(".pull-*"))


@pytest.mark.parametrize("path", ["../secret", "/etc/passwd", "1/../../x", ".ssh/config"])
def test_paths_that_lead_elsewhere_are_refused(
    gateway: FakeGateway, tmp_path: Path, path: str
) -> None:
    gateway.versions[1].record["files"][2]["path"] = path
    assert exit_code(refused(gateway, "pull", "m@1", "--out", tmp_path / "m")) == 2
    assert not list(tmp_path.iterdir())


def test_a_version_without_files_cannot_be_fetched(gateway: FakeGateway, tmp_path: Path) -> None:
    gateway.versions[1].record |= {"files": [], "state": "failed"}
    assert "it is failed" in refused(gateway, "pull", "m@1", "--out", tmp_path).why


@pytest.mark.parametrize(
    ("words", "method", "path"),
    [
        (("rm", "m@1"), "DELETE", "/api/models/m/versions/1"),
        (("rm", "m@1", "--purge", "--yes"), "DELETE", "/api/models/m/versions/1?purge=true"),
        (("restore", "m@1"), "POST", "/api/models/m/versions/1/restore"),
    ],
)
def test_a_version_is_put_away_and_brought_back(
    gateway: FakeGateway, words: tuple[str, ...], method: str, path: str
) -> None:
    gateway.answers[path] = {"state": "retired"}
    result = run(gateway, *words, "--reason", "old")
    assert result.exit_code == 0, result.exception
    assert [change[:2] for change in gateway.changes] == [(method, path)]
    assert result.stderr == "version 1 of m is retired\n"
    assert gateway.headers["servegate-reason"] == "old"


@pytest.mark.parametrize(
    "words",
    [("rm", "m"), ("rm", "m:stable"), ("rm", "m@1", "--purge"), ("restore", "m:stable")],
)
def test_what_cannot_be_undone_needs_a_number_and_a_word(
    gateway: FakeGateway, words: tuple[str, ...]
) -> None:
    assert exit_code(refused(gateway, *words)) == 2
    assert gateway.changes == []


GARBAGE = {
    "bytes": 2_000_000,
    "items": [{"kind": "blob", "name": "abc", "size": 2_000_000, "why": "nothing needs it"}],
}


def test_garbage_is_shown_before_it_goes(gateway: FakeGateway) -> None:
    gateway.answers["/api/gc"] = GARBAGE
    result = run(gateway, "gc", "--keep", 5, "--dry-run")
    assert result.stdout.splitlines()[1] == "blob\tabc\t2000000\tnothing needs it"
    assert result.stderr == "2 MB would be freed\n"
    assert gateway.changes == [("POST", "/api/gc", {"keep": 5, "dry_run": True})]


def test_garbage_goes_only_with_a_word(gateway: FakeGateway) -> None:
    gateway.answers["/api/gc"] = GARBAGE
    assert exit_code(refused(gateway, "gc")) == 2
    assert [body["dry_run"] for _, _, body in gateway.changes] == [True]
    assert run(gateway, "gc", "--yes").exit_code == 0
    assert [body["dry_run"] for _, _, body in gateway.changes] == [True, False]
