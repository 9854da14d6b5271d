"""`servegate export` and `apply`, over the admin API of a control plane in memory."""

import asyncio
from pathlib import Path

import pytest
import yaml
from admin.api.admin_scene import application
from builders import ControlPlane, replica, write_model
from cli.commands import Done, servegate
from cli.http_servers import serving_app

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
