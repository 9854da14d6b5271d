"""A gateway from which the workbench was removed."""

import shutil
import urllib.request
from pathlib import Path

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
HTML = {"accept": "text/html"}
PAGES = (
    *("/", "/models/m", "/models/m/versions/1", "/models/m/versions/1/batching", "/traffic/m"),
    *("/try", "/try/m", "/runs", "/live", "/upload", "/reference"),
)
MISSING = (
    *(("convert", "onnx", "saved_model"), ("eval", "ls"), ("load", "run", "--model", "m")),
    *(("batching", "tune", "m"), ("hints", "simulate", "--trace", "calls.csv")),
)


@pytest.fixture
def bare(tmp_path: Path) -> dict[str, str]:
    hidden = shutil.ignore_patterns("workbench", "__pycache__")
    shutil.copytree(harness.ROOT / "serve", tmp_path / "bare" / "serve", ignore=hidden)
    return {"PYTHONPATH": str(tmp_path / "bare")}


def page(up: harness.RunningGateway, path: str) -> tuple[int, str]:
    asked = urllib.request.Request(up.admin + path, headers=HTML)
    try:
        with urllib.request.urlopen(asked, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_everything_but_the_workbench_works_and_its_commands_say_what_is_missing(
    bare: dict[str, str], tmp_path: Path
) -> None:
    with harness.up(tmp_path / "state", "--replicas", "1", "--workers", "1", env=bare) as up:

        def servegate(*words: str):
            return harness.servegate(*words, "--admin-url", up.admin, env=bare)

        for number, factor in ((1, 2.0), (2, 3.0)):
            folder = pushing.source(tmp_path / str(number), factor)
            done = pushing.push(up, folder, "m", "--wait", "--live", env=bare)
            assert done.returncode == 0, done.stderr
            assert pushing.factor_of(up, "m") == factor
        for client, module in pushing.clients(up):
            assert pushing.asked(client, module, "m", "1")[2] == 2.0
        done = servegate("route", "set", "m", "1=100")
        assert done.returncode == 0, done.stderr
        assert pushing.factor_of(up, "m") == 2.0
        done = servegate("hints", "show")
        assert (done.returncode, "default" in done.stdout) == (0, True), done.stderr
        for path in PAGES:
            status, text = page(up, path)
            assert status == 200, (path, text)
            assert "Evaluate" not in text and "/loadtests" not in text, path
        for path in ("/evaluations", "/datasets", "/loadtests", "/api/evaluations"):
            assert page(up, path)[0] == 404, path
        for words in MISSING:
            done = harness.servegate(*words, env=bare)
            assert (done.returncode, "Traceback" in done.stderr) == (1, False), done
            assert "is not installed" in done.stderr, words
        saved = tmp_path / "saved"
        saved.mkdir()
        (saved / "saved_model.pb").touch()
        done = servegate("model", "push", str(saved), "m", "--convert")
        assert (done.returncode, "is not installed" in done.stderr) == (1, True), done
        done = servegate("key", "create", "--role", "predictor")
        assert done.returncode == 0, done.stderr
        assert pushing.infer(up, "m")[0] == 401
