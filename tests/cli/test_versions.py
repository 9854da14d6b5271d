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
from serve.core.versions import VersionFile

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
        files.append(VersionFile(path, len(data), sha256))
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
    assert shown.startswith(
        "m@1: ready on a b\n  source: onnx m.onnx by alice, 1970-01-01 00:00Z\n"
    )
    assert "  tags: k=v\n  finding: no batching\n" in shown
    assert "1/model.onnx\t5\t" in shown
    assert json.loads(run(gateway, "show", name, "--json").stdout)["version"] == 1
    for other, status in (("m@7", 3), ("m:nobody", 3), ("m@x", 2), ("a/b@1", 2), ("m@", 2)):
        assert exit_code(refused(gateway, "show", other)) == status
    gateway.faults.append(Fault("GET", "/versions/1", status=404, code="unknown_version"))
    plain = run(gateway, "show", "m@1").stdout
    assert plain == "m@1: ready on a b\n  source: the gateway's model repository\n"


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


def test_bytes_of_another_digest_are_thrown_away(gateway: FakeGateway, tmp_path: Path) -> None:
    sha256 = gateway.versions[1].record["files"][1]["sha256"]
    gateway.blobs[sha256] = b"mudel"
    assert refused(gateway, "pull", "m@1", "--out", tmp_path).code == "digest_mismatch"
    assert not list(tmp_path.rglob("model.onnx")) and not list(tmp_path.rglob(".pull-*"))


def test_a_pull_overwrites_nothing_and_stays_inside(gateway: FakeGateway, tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("mine")
    assert exit_code(refused(gateway, "pull", "m@1", "--out", tmp_path)) == 5
    assert (tmp_path / "labels.txt").read_text() == "mine"
    record = gateway.versions[1].record
    for path in ("../secret", "/etc/passwd", "1/../../x", ".ssh/config"):
        record["files"][2]["path"] = path
        assert exit_code(refused(gateway, "pull", "m@1", "--out", tmp_path / "m")) == 2
    record |= {"files": [], "state": "failed"}
    assert "it is failed" in refused(gateway, "pull", "m@1", "--out", tmp_path / "m").why
    assert [path.name for path in tmp_path.iterdir()] == ["labels.txt"]


def test_a_version_is_put_away_and_brought_back_by_its_number(gateway: FakeGateway) -> None:
    for words in ("rm m", "rm m:stable", "rm m@1 --purge", "restore m:stable"):
        assert exit_code(refused(gateway, *words.split())) == 2
    path = "/api/models/m/versions/1"
    for words, method, asked in (
        ("rm m@1", "DELETE", path),
        ("rm m@1 --purge --yes", "DELETE", f"{path}?purge=true"),
        ("restore m@1", "POST", f"{path}/restore"),
    ):
        gateway.answers[asked] = {"state": "retired"}
        result = run(gateway, *words.split(), "--reason", "old")
        assert result.exit_code == 0, result.exception
        assert gateway.changes.pop()[:2] == (method, asked)
        assert result.stderr == "version 1 of m is retired\n"
        assert gateway.headers["servegate-reason"] == "old"
    assert gateway.changes == []


def test_garbage_is_shown_and_goes_only_with_a_word(gateway: FakeGateway) -> None:
    item = {"kind": "blob", "name": "abc", "size": 2_000_000, "why": "nothing uses it"}
    gateway.answers["/api/gc"] = {"bytes": 2_000_000, "items": [item]}
    result = run(gateway, "gc", "--keep", 5, "--dry-run")
    assert result.stdout.splitlines()[1] == "blob\tabc\t2000000\tnothing uses it"
    assert result.stderr == "would free 2 MB\n"
    assert gateway.changes == [("POST", "/api/gc", {"keep": 5, "dry_run": True})]
    assert exit_code(refused(gateway, "gc")) == 2
    assert run(gateway, "gc", "--yes").exit_code == 0
    assert [body["dry_run"] for _, _, body in gateway.changes] == [True, True, False]
