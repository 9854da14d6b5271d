"""`servegate hints simulate`: what it plays, what it tells, and what it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli.commands import Done, servegate

from serve.cli.talk import LogTalk
from serve.workbench.simulator.cli.fronts_picture import SCALERS, WIDE, svg
from serve.workbench.simulator.cli.simulation import SimulationProgress
from serve.workbench.simulator.comparison import FIRST_HALF, FIXED, HINDSIGHT, KPA, OURS
from serve.workbench.simulator.fronts import FrontPoint

SHORT = ("--rate", 20, "--minutes", 5, "--seeds", 1)


def simulate(*words: object) -> Done:
    return servegate("hints", "simulate", *words)


def test_a_load_is_played_with_the_policies_that_are_asked_for() -> None:
    policies = ("--policy", "servegate", "--policy", "kpa", "--policy", "fixed")
    done = simulate("--load", "steady", *policies, *SHORT)
    assert done.returncode == 0, done.stderr
    heads, *rows = (line.split("\t") for line in done.stdout.splitlines())
    assert heads == ["load", "policy", "late", "replica-hours", "÷ oracle", "reversals/h"]
    assert [each[:2] for each in rows] == [
        ["steady", "oracle"],
        ["steady", "servegate"],
        ["steady", "fixed in hindsight"],
        ["steady", "fixed by the first half"],
        ["steady", "kpa 70 %"],
    ]
    first, *_, last = done.stderr.splitlines()
    assert first == "5 simulations, 1 at a time"
    assert last.startswith("5/5 steady, seed 1: ")


def test_a_log_gets_a_line_every_few_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    now = iter([0.0, 1.0, 4.0, 5.0, 6.0])
    with SimulationProgress(LogTalk(), 4, lambda: next(now)) as progress:
        for seed in range(4):
            progress.add("steady", seed, "ray 2")
    assert capsys.readouterr().err.splitlines() == [
        "2/4 steady, seed 1: ray 2; 4 s left",
        "4/4 steady, seed 3: ray 2",
    ]


def test_the_same_seeds_are_the_same_numbers_and_json_has_them_all() -> None:
    words = ("--load", "steady", "--policy", "ray", "--all-parameters", "--json", *SHORT)
    first, again = simulate(*words), simulate(*words)
    assert first.stdout == again.stdout
    page = json.loads(first.stdout)
    assert page["scene"]["batch"] == 8
    assert len({one["parameter"] for one in page["points"] if one["scaler"] == "ray"}) > 3


def test_own_calls_are_played_as_they_came_and_drawn(tmp_path: Path) -> None:
    trace, picture = tmp_path / "calls.csv", tmp_path / "cost.svg"
    trace.write_text("time,user\n" + "".join(f"{at / 10},x\n" for at in range(6000)))
    done = simulate(
        *("--trace", trace, "--policy", "servegate", "--seeds", 1, "--plot", picture),
        *("--service", "12+3", "--objective", "p99<200ms", "--bounds", "1..3"),
    )
    assert done.returncode == 0, done.stderr
    assert "calls\tservegate\t0.00 %\t0.17\t1.00" in done.stdout
    assert picture.read_text().startswith("<svg")


def test_what_cannot_be_played_is_said_before_anything_is() -> None:
    for words, says in (
        ("--load storm", "there is no load 'storm'"),
        ("--policy magic", "there is no policy 'magic'"),
        ("--service fast", "--service cannot be 'fast'"),
        ("--service 0+0", "--service cannot be '0+0'"),
        ("--service 900+200 --objective p99<1s", "longer than the objective"),
        ("--bounds 3..1", "--bounds cannot be '3..1'"),
        ("--plot cost.png", "is an SVG file"),
        ("--rate 100000 --minutes 1440", "too many to simulate"),
        ("--trace /nowhere.csv", "cannot read"),
        ("--service 1+1 --model m", "cannot be combined"),
    ):
        done = simulate(*words.split())
        assert (done.returncode, done.stdout) == (2, ""), words
        assert says in done.stderr


# --- the picture of a comparison ------------------------------------------------------------------

HERE = FrontPoint("on & off", OURS, "", True, 0.02, 0.0, 10.0, 1.5, 6.0, 5)
POINTS = [
    HERE,
    replace(HERE, scaler=KPA, parameter="70 %", late=0.0, cost=9.0),
    replace(HERE, scaler=KPA, parameter="90 %", is_usual=False, late=1.0, cost=0.5),
]


def test_a_comparison_is_a_picture_that_is_told_in_words() -> None:
    root = ElementTree.fromstring(svg(POINTS, "late < cheap"))
    words = [one.text or "" for one in root.iter() if one.tag.endswith(("title", "desc", "text"))]
    assert "late < cheap" in words and "on & off" in words
    assert any("on & off, servegate: 2 % late at 1.50 times the oracle." in one for one in words)


def test_what_is_too_dear_or_too_rare_stands_at_the_edge() -> None:
    root = ElementTree.fromstring(svg(POINTS, "title"))
    dots = [one for one in root.iter() if one.tag.endswith("circle")][len(SCALERS) :]
    assert len(dots) == 3
    assert all(0 <= float(one.attrib["cx"]) <= WIDE for one in dots)


def test_fixed_fleets_are_dots_without_a_line() -> None:
    fleets = [
        replace(HERE, scaler=FIXED, parameter=HINDSIGHT, late=0.01, cost=1.2),
        replace(HERE, scaler=FIXED, parameter=FIRST_HALF, late=0.1, cost=0.9),
    ]
    root = ElementTree.fromstring(svg(fleets, "title"))
    told = [one.text or "" for one in root.iter() if one.tag.endswith("title")]
    assert "fixed by the first half: 10 % late, × 0.90" in told
    assert not [one for one in root.iter() if one.tag.endswith("polyline")]
