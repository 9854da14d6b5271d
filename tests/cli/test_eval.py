"""`servegate eval`: what is sent, what is shown, and how it ends."""

import asyncio
import io
import zipfile
from types import SimpleNamespace

import pytest
from cli.commands import servegate

from serve.cli.talk import LogTalk
from serve.core.errors import Invalid
from serve.workbench.evaluation.cli.report import lines
from serve.workbench.evaluation.cli.run import gates_error
from serve.workbench.evaluation.cli.uploads import name_of, push


def estimate(value):
    return {"value": value, "low": value - 0.01, "high": value + 0.01}


def side(accuracy):
    latency = {"p50": 1.5, "p90": 2.0, "p99": 30.0, "mean": 2.0}
    numbers = {"macro_f1": 0.9, "ece": 0.02, "mae": None, "rmse": None}
    return numbers | {"failed": 1, "latency": latency, "accuracy": estimate(accuracy)}


def page():
    pairs = {"both": 560, "only_a": 20, "only_b": 8, "neither": 11}
    compared = {"agreement": estimate(0.98), "drop": estimate(0.02), "mcnemar": 0.0123}
    report = {
        "a": side(0.97),
        "b": side(0.95),
        "compared": compared | {"pairs": pairs, "difference": None},
        "buckets": {"both-right": 560, "only-b": 8, "only-a": 20},
        "slices": [{"name": "pen", "value": "blue", "rows": 9, "a": side(1), "b": side(0.5)}],
        "gates": [{"text": "drop<=0.5pp", "value": 0.02, "passed": False}],
    }
    found = {"id": "3f9c01ab27d4", "state": "done", "model": "digits", "dataset": "held-out"}
    return found | {"revision": 2, "done": 599, "total": 599, "a": 1, "b": 2, "report": report}


def test_a_report_is_readable_without_colour():
    shown = list(lines(page()))
    assert shown[0] == (
        "3f9c01ab27d4: done, model digits, dataset held-out, revision 2, 599 of 599 rows"
    )
    assert shown[1].startswith("  A version 1: accuracy 0.9700 (0.9600 to 0.9800), macro F1 0.9000")
    assert "p99 30 ms, 1 failed" in shown[1]
    assert "drop +2.00 pp (+1.00 to +3.00), McNemar p 0.0123 (20 only A, 8 only B)" in shown[3]
    assert shown[4] == "  rows: both-right 560, only-a 20, only-b 8"
    assert shown[-1] == "  FAILED  drop<=0.5pp  (0.02)"
    error = gates_error(page()["report"]["gates"])
    assert error is not None
    assert error.findings == ("drop<=0.5pp: measured 0.02",)
    assert gates_error([{"text": "x", "value": 1.0, "passed": True}]) is None


class Client:
    """Takes what is sent."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        pass

    async def put(self, path, *, content, **options):
        self.path = path
        self.body = b"".join([piece async for piece in content])
        return SimpleNamespace(is_success=True, json=lambda: {"sent": len(self.body)})


def sent(path):
    client = Client()
    admin = SimpleNamespace(url="http://gateway", asynchronous=lambda: client)
    asyncio.run(push(admin, path, "held out", "y", "a,b", LogTalk()))
    return client


def test_a_folder_is_sent_as_an_archive_without_hidden_files(tmp_path):
    (tmp_path / "7").mkdir()
    (tmp_path / "7/a.png").write_bytes(b"picture")
    (tmp_path / ".DS_Store").write_bytes(b"x")
    client = sent(tmp_path)
    assert client.path == "/api/datasets/held%20out?format=zip&label=y&slices=a%2Cb"
    with zipfile.ZipFile(io.BytesIO(client.body)) as archive:
        assert archive.namelist() == ["7/a.png"]


def test_a_file_is_sent_as_it_is_under_its_name(tmp_path):
    path = tmp_path / "rows.CSV"
    path.write_bytes(b"x,label\n1,2\n")
    client = sent(path)
    assert (client.body, "format=csv" in client.path) == (b"x,label\n1,2\n", True)
    names = {"a b/My Data.csv": "My-Data", "..hidden.npz": "hidden", "ü.zip": "dataset"}
    assert {path: name_of(tmp_path / path) for path in names} == names


def test_what_is_no_dataset_is_not_sent(tmp_path):
    with pytest.raises(Invalid, match="contains no files"):
        sent(tmp_path)
    (tmp_path / "rows.xlsx").write_bytes(b"")
    for name in ("rows.xlsx", "missing.csv"):
        with pytest.raises(Invalid):
            sent(tmp_path / name)


def test_every_verb_has_an_example_and_needs_a_gateway():
    for verb in ("run", "ls", "show", "rows", "export", "gate", "cancel", "resume"):
        done = servegate("eval", verb, "--help")
        assert done.returncode == 0 and "Example" in done.stdout, verb
    done = servegate("eval", "rm", "x", "--admin-url", "http://127.0.0.1:1")
    assert done.returncode == 6 and "does not respond" in done.stderr
