"""One replica alone: it loads under its calls and says so, or does not load and says so."""

import harness
import pushing
import pytest

pytestmark = [pytest.mark.triton, pytest.mark.slow]
FLAGS = ("--model-repo", "", "--replicas", "1", "--quarantine", "off")


def shown(up, name):
    """What `model show` tells, whatever its exit status says."""
    return harness.servegate("model", "show", name, "--admin-url", up.admin).stdout


def test_what_would_load_beside_calls_waits_with_its_reason_where_that_is_refused(tmp_path):
    with harness.up(tmp_path / "state", *FLAGS, "--without-spare", "refuse") as up:
        pushing.published(up, tmp_path / "a", "m", 2.0)
        pushing.publish(up, pushing.source(tmp_path / "b", 3.0), "m")
        harness.until(
            lambda: "cannot be taken out of rotation" in shown(up, "m@2"), what="it says why"
        )
        assert pushing.state(up, "m", 2)["state"] == "loading"
        assert pushing.infer(up, "m", "2")[0] != 200
        assert pushing.factor_of(up, "m") == 2.0
        held = up.get("/api/replicas?readings=false")[0]["held"]
        assert held["m"] == [1]


def test_it_loads_beside_calls_with_a_warning_otherwise(tmp_path):
    with harness.up(tmp_path / "state", *FLAGS, "--without-spare", "warn") as up:
        pushing.published(up, tmp_path / "a", "m", 2.0)
        pushing.published(up, tmp_path / "b", "m", 3.0)
        assert pushing.factor_of(up, "m", "2") == 3.0
        assert "replica local-0 loads models while it serves calls" in up.program.output
