"""`servegate route`, `export` and `apply`, and which versions `model ls` calls serving."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml
from admin.api.admin_scene import application
from builders import ControlPlane, replica, write_model
from cli.commands import Done, servegate
from cli.http_servers import serving_app
from cli.test_server import Gateway, serving

from serve.app.readiness import ReadyModels
from serve.cli.models import _state
from serve.cli.up import _welcome
from serve.settings import Settings
from serve.telemetry import Meters


def test_a_start_without_models_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    _welcome(ReadyModels(Settings(), []))
    assert (
        "no models yet; push one with: servegate model push PATH NAME --wait"
        in capsys.readouterr().err
    )


def test_weights_that_are_no_percentages_are_echoed_as_percentages() -> None:
    gateway = Gateway("")
    with serving(gateway):
        for shares, said in (
            (("1=90", "2=20"), "traffic split of m: 1=90 2=20 (81.8 % and 18.2 %); active"),
            (("1=90", "2=10"), "traffic split of m: 1=90 2=10; active"),
            (("1=1", "2=0"), "traffic split of m: 1=1 2=0 (100 %); active"),
        ):
            done = servegate("route", "set", "m", *shares, "--admin-url", gateway.url)
            assert done.stderr.startswith(said)


def test_a_version_that_gets_calls_is_serving_in_the_list_too() -> None:
    for state, labels, version, shown in (
        ("ready", [], 1, "serving"),
        ("ready", [], 2, "ready"),
        ("ready", ["stable"], 2, "serving"),
        ("loading", ["stable"], 1, "loading"),
    ):
        one: dict[str, Any] = {"version": version, "state": state, "labels": labels}
        assert _state(one, {"split": {"1": 100}}) == shown, one


# --- files of routes, over a control plane in memory ---------------------------------------------


FILE = """\
routes:
  m:
    split: {1: 50, 2: 50}
    sticky: header:x-user-id
    matches:
    - header: x-team
      value: blue*
      split: {2: 100}
  n:
    split: {1: 100}
    fallback: 2
"""


@pytest.fixture
def plane(tmp_path: Path) -> ControlPlane:
    made = ControlPlane(tmp_path, replicas=[replica("a")])
    for name in ("m", "n"):
        write_model(made.repository, name, 1, 2, 3)
    return asyncio.run(made.begin(a={"m": (1, 2), "n": (1, 2)}))


def test_a_file_is_applied_as_one_change_and_read_back(plane: ControlPlane, tmp_path: Path) -> None:
    file = tmp_path / "routes.yaml"
    file.write_text(FILE)
    with serving_app(application(plane)) as url:
        rehearsed = servegate("apply", "-f", file, "--dry-run", "--admin-url", url)
        before = plane.publisher.snapshot.generation
        assert rehearsed.returncode == 0, rehearsed.stderr
        assert "m: split.2: (nothing) → 50" in rehearsed.stdout
        assert "nothing was changed" in rehearsed.stderr and plane.decisions.route("m") is None
        applied = servegate("apply", "-f", file, "--admin-url", url, "--reason", "canary")
        assert applied.returncode == 0, applied.stderr
        assert applied.stdout == rehearsed.stdout
        assert plane.publisher.snapshot.generation == before + 1  # calls see both, or none
        exported = servegate("export", "--admin-url", url)
        assert yaml.safe_load(exported.stdout) == yaml.safe_load(FILE)
        again = servegate("apply", "-f", file, "--admin-url", url)
        assert (again.returncode, again.stdout) == (0, "")
        assert "already as in the file" in again.stderr
        file.write_text("routes:\n  m:\n    split: {1: 1}\n")
        less = servegate("apply", "-f", file, "--admin-url", url)
        assert 'm: sticky: "header:x-user-id" → (nothing)' in less.stdout
        route = plane.decisions.route("m")
        assert route is not None and (route.sticky, route.matches) == ("", ())
        assert plane.decisions.route("n") is not None  # the file does not name it
        file.write_text(FILE + "  x:\n    split: {1: 1}\n")
        refused = servegate("apply", "-f", file, "--admin-url", url)
        assert refused.returncode == 3 and plane.decisions.route("m") == route, refused.stderr


def test_a_file_that_is_no_list_of_routes_is_refused_with_its_fault(tmp_path: Path) -> None:
    def applied(text: str) -> Done:
        (tmp_path / "routes.yaml").write_text(text)
        return servegate(
            "apply", "-f", tmp_path / "routes.yaml", "--admin-url", "http://localhost:9"
        )

    for text, said in (
        ("", "does not contain routes"),
        ("routes: {}\nmodels: {}", "does not contain routes"),
        ("routes: {m: {1: 2}}", "it has no 'split'"),
        ("routes: {m: {split: {1: 1}, stcky: key}}", "unknown: stcky"),
        ("routes: {m: {split: {1: 1}, sticky: cookie}}", "sticky cannot be 'cookie'"),
        ("routes: {m: {split: {stable: 1}}}", "malformed"),
        ("routes: {m: {split: {1: 1}, matches: [{key: a}]}}", "malformed"),
        ("routes: {m: [", "not valid YAML"),
    ):
        done = applied(text)
        assert (done.returncode, said in done.stderr) == (2, True), (text, done.stderr)
    assert servegate("apply", "-f", tmp_path / "none.yaml").returncode == 2


def test_route_mirror_says_whether_the_candidate_responds_and_predicts_the_same(
    plane: ControlPlane,
) -> None:
    meters = Meters()

    async def text() -> str:
        return meters.text().decode()

    with serving_app(application(plane, data_metrics=text)) as url:
        where = ("--admin-url", url)
        assert servegate("route", "mirror", "m", *where).returncode == 3
        done = servegate("route", "set", "m", "1=100", "--mirror", "2=5", "--idempotent", *where)
        assert done.returncode == 0, done.stderr
        assert "no responses were compared yet" in servegate("route", "mirror", "m", *where).stderr
        meters.mirrored(("m", "2", "grpc"), "OK", 0.004)
        meters.mirror_dropped(("m", "2"), "queue_full")
        meters.compared(("m", "2"), "not_kept")
        meters.compared_rows(("m", "2", "scores"), 3, 1)
        done = servegate("route", "mirror", "m", *where)
        shown = servegate("route", "show", "m", *where)
    assert "copies to version 2: 1 × OK; mean time 4 ms" in done.stderr
    assert "dropped: 1 × queue_full" in done.stderr
    assert "not compared: 1 × not_kept" in done.stderr
    assert "scores" in done.stdout and "25 %" in done.stdout
    assert "mirror: 5 % of the calls are also sent to version 2" in shown.stderr
    assert "idempotent: " in shown.stderr
    for words in (("--mirror", "x"), ("--mirror-code",), ("--deadline", "0"), ("--mirror", "0=5")):
        refused = servegate("route", "set", "m", "1=100", *words)
        assert refused.returncode == 2 and "Traceback" not in refused.stderr, words
