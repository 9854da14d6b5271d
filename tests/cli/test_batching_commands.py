"""`servegate batching set`, `lint` and `tune`: what is shown, sent and followed, and exit codes."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cli.commands import Done, servegate
from cli.http_servers import Request, answering

from serve.capacity.search import Halving, candidates
from serve.core.objectives import Objective
from serve.triton.canonical import canonical_text
from serve.triton.config import parse
from serve.triton.config_revisions import revised
from serve.workbench.tuning.cli.options import numbers_of
from serve.workbench.tuning.cli.tuner import line
from serve.workbench.tuning.session import Now
from serve.workbench.tuning.state import TuningState, TuningSubject

BASE = (
    'backend: "onnxruntime" max_batch_size: 8 '
    'input { name: "x" data_type: TYPE_FP32 dims: [ 3 ] } '
    'output { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } dynamic_batching { }'
)
PATH = re.compile(r"/api/models/m/versions/(\d+)/serving-configuration\Z")
WARNING = {
    "rule": "preferred-caps",
    "severity": "warning",
    "field": "dynamic_batching.preferred_batch_size",
    "why": "batches rarely exceed 4 rows, although max_batch_size is 8",
    "fix": "add 8, or set max_batch_size: 4",
}
FOREIGN = {"rule": "graph-level", "severity": "error", "field": "optimization.graph.level"}
FOREIGN |= {
    "why": "there is no level 7",
    "fix": "use 0 (all), -1 (basic), 1 (extended) or 2 (none)",
}


def change(phase: str, outcome: str = "", told: str = "") -> dict[str, Any]:
    """How far a change is."""
    return {"phase": phase, "outcome": outcome, "told": told}


def replicas(**states: str) -> dict[str, Any]:
    """How far replicas are; `failed: why` has a reason."""
    parted = {name: state.partition(": ") for name, state in states.items()}
    return {name: {"state": state, "why": why} for name, (state, _, why) in parted.items()}


@dataclass(slots=True)
class Gateway:
    """`steps` are what GETs tell after the change, one after the other; the last one stays.

    `refusal` is the status and the error that the PUT answers; `dry_refusal` that of a dry run.
    """

    etag: str = '"12"'
    findings: Sequence[Mapping[str, Any]] = (WARNING,)
    fields: Mapping[str, Any] = field(default_factory=dict)
    shared_with: Sequence[int] = ()
    steps: Sequence[Mapping[str, Any]] = ({"change": change("done", "applied")},)
    refusal: tuple[int, Mapping[str, str]] | None = None
    dry_refusal: tuple[int, Mapping[str, str]] | None = None
    puts: list[tuple[str, Any, str]] = field(default_factory=list)  # query, body, If-Match
    reads: int = 0
    is_changed: bool = False

    def view(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        base = parse(BASE)
        told: dict[str, Any] = {
            "model": "m",
            "version": 3,
            "shared_with": list(self.shared_with),
            "base": canonical_text(base),
            "config": canonical_text(revised(base, fields)),
            "fields": dict(fields),
            "etag": self.etag,
            "findings": list(self.findings),
            "replicas": replicas(a="applied"),
            "change": None,
        }
        if self.is_changed:
            told |= self.steps[min(self.reads, len(self.steps) - 1)]
            self.reads += 1
        return told

    def answer(self, method: str, target: str, body: Any, if_match: str) -> tuple[int, Any]:
        """What is answered to one request."""
        parts = urlsplit(target)
        if parts.path == "/api/models/m":
            return 200, {"labels": {"stable": 2}, "versions": [{"version": 1}, {"version": 3}]}
        if not PATH.match(parts.path):
            return 404, error("not_found", f"there is no {parts.path}")
        if method == "GET":
            return 200, self.view(self.fields)
        self.puts.append((parts.query, body, if_match))
        is_dry = "dry_run=true" in parts.query
        refusal = self.dry_refusal if is_dry else self.refusal
        if refusal:
            return refusal
        if is_dry:
            return 200, self.view(body["fields"])
        self.fields, self.is_changed = body["fields"], True
        return 202, self.view(self.fields)


def error(code: str, what: str, why: str = "") -> dict[str, str]:
    """The body of a refusal."""
    return {"code": code, "what": what, "why": why, "try_this": ""}


def serving(gateway: Gateway) -> AbstractContextManager[str]:
    """Its URL while it runs."""

    def answer(request: Request) -> tuple[int, Any]:
        body = json.loads(request.body) if request.body else None
        etag = request.headers.get("if-match", "")
        return gateway.answer(request.method, request.path, body, etag)

    return answering(answer)


# --- set -----------------------------------------------------------------------------------------


FINDING = "max_batch_size: it is -1. Fix: 0 or more [batch-size-negative]"


def edit(gateway: Gateway, *words: str, which: str = "m@3") -> Done:
    with serving(gateway) as url:
        return servegate("batching", "set", which, *words, "--admin-url", url)


def test_what_differs_is_data_and_the_rest_is_talk() -> None:
    gateway = Gateway(shared_with=(1, 2))
    done = edit(gateway, "--max-batch-size", "16", "--delay", "500us")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:2] == ["--- before", "+++ after"]
    assert "-max_batch_size: 8" in lines and "+max_batch_size: 16" in lines
    assert "+  max_queue_delay_microseconds: 500" in lines
    assert "warning: dynamic_batching.preferred_batch_size: batches rarely exceed" in done.stderr
    end = "applied to m@3 on 1 replica. To revert: servegate history restore 12"
    assert done.stderr.splitlines()[-1] == end
    assert "the change also applies to versions 1, 2" in done.stderr


def test_only_fields_that_differ_are_sent_and_only_for_what_was_read() -> None:
    gateway = Gateway()
    edit(gateway, "--max-batch-size", "16", "--watch", "60s")
    body = {"fields": {"max_batch_size": 16}}
    assert gateway.puts == [
        ("dry_run=true", body, ""),
        ("wait=false&watch=60", body, '"12"'),
    ]
    edit(gateway, "--max-batch-size", "32", "--if-match", '"7"')
    assert gateway.puts[-1][2] == '"7"'
    done = edit(gateway, "--max-batch-size", "32")
    assert (done.returncode, done.stdout, len(gateway.puts)) == (0, "", 4)
    assert "no differences" in done.stderr


def test_a_reset_sends_no_fields_and_is_the_way_back_from_the_first_change() -> None:
    gateway = Gateway(etag='"0"')
    done = edit(gateway, "--max-batch-size", "16")
    assert "To revert: servegate batching set m@3 --reset" in done.stderr
    done = edit(gateway, "--reset")
    assert done.returncode == 0 and "+max_batch_size: 8" in done.stdout
    assert gateway.puts[-1][1] == {"fields": {}}


def test_a_dry_run_shows_all_and_changes_nothing() -> None:
    gateway = Gateway()
    done = edit(gateway, "--max-batch-size", "16", "--dry-run")
    assert done.returncode == 0 and "+max_batch_size: 16" in done.stdout
    assert "batches rarely exceed" in done.stderr and "dry run" in done.stderr
    assert [query for query, _, _ in gateway.puts] == ["dry_run=true"]


def test_replicas_are_told_as_they_come_to_it() -> None:
    steps = [
        {"change": change("trying"), "replicas": replicas(a="waiting", b="waiting")},
        {"change": change("applying"), "replicas": replicas(a="loading", b="waiting")},
        {"change": change("applying"), "replicas": replicas(a="applied", b="loading")},
        {"change": change("done", "applied"), "replicas": replicas(a="applied", b="applied")},
    ]
    done = edit(Gateway(steps=[steps[0], *steps]), "--off")
    talk = done.stderr.splitlines()
    states = "a: loading", "b: waiting", "a: applied", "b: loading", "b: applied"
    told = [line for line in talk if line.startswith("replica")]
    assert told == [f"replica {state}" for state in states]
    assert "trying the configuration on a temporary Triton" in talk
    assert "applying the configuration to one replica after the other" in talk


def test_every_end_of_a_change_has_its_exit_code() -> None:
    for outcome, code, said in (
        ("refused", 7, "the change was refused"),
        ("taken back", 7, "the change was rolled back"),
        ("replaced", 5, ""),
        ("failed", 1, ""),
    ):
        done = edit(Gateway(steps=[{"change": change("done", outcome, "p99 is 80 ms")}]), "--off")
        assert done.returncode == code
        assert said in done.stderr and "p99 is 80 ms" in done.stderr


def test_a_conflict_is_an_error_of_its_own() -> None:
    done = edit(Gateway(refusal=(412, error("precondition_failed", "it has changed"))), "--off")
    assert done.returncode == 5 and "it has changed" in done.stderr


def test_after_a_restart_of_the_gateway_the_replicas_tell_the_end() -> None:
    steps = [{"replicas": replicas(a="loading")}] * 2 + [{"replicas": replicas(a="applied")}]
    assert edit(Gateway(steps=steps), "--off").returncode == 0
    failed = [{"replicas": replicas(a="failed: no memory")}]
    done = edit(Gateway(steps=failed), "--off")
    assert done.returncode == 7 and "no memory" in done.stderr


def test_programs_get_events_and_a_result() -> None:
    told = edit(Gateway(), "--max-batch-size", "16", "--json").events
    kinds = [each["type"] for each in told if each["type"] != "note"]
    assert kinds == ["difference", "findings", "replica", "result"]
    assert told[0]["fields"] == {"max_batch_size": 16}
    assert "+max_batch_size: 16" in told[0]["lines"]
    assert told[-1]["ok"] and told[-1]["changed"]


def test_what_lint_refuses_is_told_finding_by_finding() -> None:
    refused = error("check_failed", "it is not changed", f"{FINDING}; {FINDING}")
    gateway = Gateway(dry_refusal=(422, refused))
    done = edit(gateway, "--off")
    assert (done.returncode, len(gateway.puts)) == (7, 1)
    assert f"why: {FINDING}" in done.stderr
    done = edit(gateway, "--off", "--json")
    last = done.events[-1]
    assert (last["ok"], last["exit"], last["code"]) == (False, 7, "check_failed")
    assert last["findings"] == [FINDING, FINDING]


def test_a_label_names_a_version_and_no_selector_the_newest() -> None:
    gateway = Gateway()
    assert edit(gateway, "--max-batch-size", "8", which="m:stable").returncode == 0
    assert edit(gateway, "--max-batch-size", "8", which="m").returncode == 0
    assert edit(gateway, "--max-batch-size", "8", which="m:none").returncode == 3


def test_bad_values_are_told_with_what_to_try() -> None:
    for words, said in (
        ("", "no change was specified"),
        ("--delay 5", "--delay: '5' has no unit"),
        ("--watch 60 --off", "--watch: '60' has no unit"),
    ):
        gateway = Gateway()
        done = edit(gateway, *words.split())
        assert done.returncode == 2 and gateway.puts == []
        assert said in done.stderr and "try:" in done.stderr


# --- lint ----------------------------------------------------------------------------------------


REPOSITORY = Path(__file__).parents[2] / "model_repo"
ERRORS = (
    "max_batch_size: it is -1. Fix: 0 or more [batch-size-negative]; "
    "flavour 'f': response_cache: it cannot be used with sequences. "
    "Fix: response_cache { enable: false } [cache-unsupported]"
)


def lint_running(gateway: Gateway, *words: str) -> Done:
    with serving(gateway) as url:
        return servegate("batching", "lint", "m@3", *words, "--admin-url", url)


def lint(*words: object) -> Done:
    return servegate("batching", "lint", *words)


def test_the_present_findings_about_batching_are_a_table() -> None:
    gateway = Gateway(findings=[WARNING, FOREIGN])
    done = lint_running(gateway)
    assert done.returncode == 0 and gateway.puts == []
    header, row = (line.split("\t") for line in done.stdout.splitlines())
    assert header == ["severity", "field", "why", "fix", "rule"]
    assert dict(zip(header, row, strict=True)) == WARNING
    done = lint_running(Gateway(findings=()))
    assert (done.returncode, done.stdout) == (0, "")
    assert "no findings" in done.stderr


def test_flags_ask_for_the_edited_configuration_without_changing_it() -> None:
    gateway = Gateway()
    done = lint_running(gateway, "--preferred", "4", "--json")
    [(query, body, _)] = gateway.puts
    assert query == "dry_run=true"
    assert body["fields"]["dynamic_batching"] == {"preferred_batch_size": [4]}
    assert json.loads(done.stdout)["findings"] == [WARNING]


def test_errors_of_the_edited_configuration_end_with_1() -> None:
    gateway = Gateway(dry_refusal=(422, error("check_failed", "it is not changed", ERRORS)))
    done = lint_running(gateway, "--off", "--json")
    assert done.returncode == 1
    names = ("severity", "field", "why", "fix", "rule")
    found = json.loads(done.stdout)["findings"]
    assert [tuple(each[name] for name in names) for each in found] == [
        ("error", "max_batch_size", "it is -1", "0 or more", "batch-size-negative"),
        (
            *("error", "flavour 'f': response_cache", "it cannot be used with sequences"),
            *("response_cache { enable: false }", "cache-unsupported"),
        ),
    ]


@pytest.mark.slow
def test_a_folder_is_checked_for_its_batching_alone(tmp_path: Path) -> None:
    folder = shutil.copytree(REPOSITORY / "digits", tmp_path / "digits")
    config = folder / "config.pbtxt"
    config.write_text(config.read_text().replace("[ 8, 8, 1 ]", "[ 8, 8 ]"))
    assert lint(folder).returncode == 0  # its shapes are wrong, which is none of batching
    config.write_text(config.read_text() + "\nresponse_cache { enable: true }")
    done = lint(folder, "--json")
    found = [each["rule"] for version in json.loads(done.stdout) for each in version["findings"]]
    assert done.returncode == 0 and found == ["cache-off", "cache-off"]
    assert lint(config, "--json").stdout == done.stdout


def test_a_configuration_is_checked_without_its_model(tmp_path: Path) -> None:
    config = tmp_path / "config.pbtxt"
    config.write_text("max_batch_size: 8 dynamic_batching { preferred_batch_size: [ 16 ] }")
    done = lint(config)
    assert done.returncode == 1 and "preferred-beyond-largest" in done.stdout
    config.write_text("max_batch_size: many")
    assert lint(config).returncode == 2
    assert lint(tmp_path / "none.pbtxt").returncode == 2
    done = lint(REPOSITORY / "digits", "--off")
    assert done.returncode == 2 and "a change of a version on a gateway" in done.stderr


# --- tune ----------------------------------------------------------------------------------------


def tune(*words: str) -> tuple[int, str]:
    with serving(Gateway()) as url:
        done = servegate("batching", "tune", "m@3", *words, "--admin-url", url)
    return done.returncode, done.stderr


def kept(folder: Path, model: str = "m", *, objective: str = "p99<50ms") -> Path:
    """The state of a tuning that was ended before its first measurement."""
    target = Objective.parse(objective)
    search = Halving(candidates(8, instances=1, objective=target), target)
    subject = TuningSubject(
        model, 3, objective, "1", "Poisson arrivals", "", {"max_batch_size": 8}, {}
    )
    TuningState(subject, search, "2026-11-22T10:00:00+00:00").save(folder)
    return folder


def test_what_cannot_be_meant_is_refused() -> None:
    for words, told in (
        ("--slo p99", "'p99' is not an objective"),
        ("--slo p99<50ms --rows 0", "'0' is not a number of rows per call"),
        ("--slo p99<50ms --instances x", "--instances cannot be 'x'"),
        ("--slo p99<50ms --instances 0", "--instances cannot be '0'"),
        ("--slo p99<50ms --budget 0", "--budget has to be above 0"),
        ("--slo p99<50ms --budget soon", "'soon' is not a duration"),
    ):
        code, said = tune(*words.split())
        assert (code, told in said) == (2, True), said
    assert numbers_of("1,4") == {1, 4}


def test_only_what_is_there_goes_on(tmp_path: Path) -> None:
    code, said = tune("--resume", str(tmp_path / "none"))
    assert code == 3 and "no tuning to resume" in said
    (tmp_path / "state.json").write_text("{")
    code, said = tune("--resume", str(tmp_path))
    assert code == 2 and "is damaged" in said


def test_a_tuning_goes_on_only_with_what_it_began_with(tmp_path: Path) -> None:
    code, said = tune("--resume", str(kept(tmp_path / "a", "other")))
    assert code == 2 and "it is for other@3" in said
    code, said = tune("--resume", str(kept(tmp_path / "b")), "--slo", "p99<9ms")
    assert code == 2 and "its objective is p99<50ms" in said


def test_a_line_says_what_is_measured_the_best_so_far_and_the_time_left() -> None:
    now = Now("rung 1: batch 8, 1 instance at 120/s", "100/s with batch 4, 1 instance", 150.0, 0.5)
    told = "rung 1: batch 8, 1 instance at 120/s; best 100/s with batch 4, 1 instance; 2 min left"
    assert line(now) == told
