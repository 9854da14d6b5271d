"""`servegate route` and what `model show` says of versions that get calls."""

from typing import Any

import pytest
from cli.commands import servegate
from cli.test_server import Gateway, serving

from serve.app.readiness import ReadyModels
from serve.cli.models import _state
from serve.cli.up import _welcome
from serve.settings import Settings


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
