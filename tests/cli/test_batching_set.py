"""`servegate batching set`: what is shown, what is sent, how it is followed, and exit codes."""

import pytest
from cli.commands import Done, servegate

from .configured_gateway import Gateway, change, error, replicas, serving

FINDING = "max_batch_size: it is -1. Fix: 0 or more [batch-size-negative]"


def run(gateway: Gateway, *words: str, which: str = "m@3") -> Done:
    with serving(gateway) as url:
        return servegate("batching", "set", which, *words, "--admin-url", url)


def test_what_differs_is_data_and_the_rest_is_talk() -> None:
    gateway = Gateway(shared_with=(1, 2))
    done = run(gateway, "--max-batch-size", "16", "--delay", "500us")
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
    run(gateway, "--max-batch-size", "16", "--watch", "60s")
    body = {"fields": {"max_batch_size": 16}}
    assert gateway.puts == [
        ("dry_run=true", body, ""),
        ("wait=false&watch=60", body, '"12"'),
    ]
    run(gateway, "--max-batch-size", "32", "--if-match", '"7"')
    assert gateway.puts[-1][2] == '"7"'
    done = run(gateway, "--max-batch-size", "32")
    assert (done.returncode, done.stdout, len(gateway.puts)) == (0, "", 4)
    assert "no differences" in done.stderr


def test_a_reset_sends_no_fields_and_is_the_way_back_from_the_first_change() -> None:
    gateway = Gateway(etag='"0"')
    done = run(gateway, "--max-batch-size", "16")
    assert "To revert: servegate batching set m@3 --reset" in done.stderr
    done = run(gateway, "--reset")
    assert done.returncode == 0 and "+max_batch_size: 8" in done.stdout
    assert gateway.puts[-1][1] == {"fields": {}}


def test_a_dry_run_shows_all_and_changes_nothing() -> None:
    gateway = Gateway()
    done = run(gateway, "--max-batch-size", "16", "--dry-run")
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
    done = run(Gateway(steps=[steps[0], *steps]), "--off")
    talk = done.stderr.splitlines()
    assert [line for line in talk if line.startswith("replica")] == [
        "replica a: loading",
        "replica b: waiting",
        "replica a: applied",
        "replica b: loading",
        "replica b: applied",
    ]
    assert "trying the configuration on a temporary Triton" in talk
    assert "applying the configuration to one replica after the other" in talk


@pytest.mark.parametrize(
    ("outcome", "code", "said"),
    [
        ("refused", 7, "the change was refused"),
        ("taken back", 7, "the change was rolled back"),
        ("replaced", 5, ""),
        ("failed", 1, ""),
    ],
)
def test_every_end_of_a_change_has_its_exit_code(outcome: str, code: int, said: str) -> None:
    done = run(Gateway(steps=[{"change": change("done", outcome, "p99 is 80 ms")}]), "--off")
    assert done.returncode == code
    assert said in done.stderr and "p99 is 80 ms" in done.stderr


def test_a_conflict_is_an_error_of_its_own() -> None:
    done = run(Gateway(refusal=(412, error("precondition_failed", "it has changed"))), "--off")
    assert done.returncode == 5 and "it has changed" in done.stderr


def test_after_a_restart_of_the_gateway_the_replicas_tell_the_end() -> None:
    steps = [{"replicas": replicas(a="loading")}] * 2 + [{"replicas": replicas(a="applied")}]
    assert run(Gateway(steps=steps), "--off").returncode == 0
    failed = [{"replicas": replicas(a="failed: no memory")}]
    done = run(Gateway(steps=failed), "--off")
    assert done.returncode == 7 and "no memory" in done.stderr


def test_programs_get_events_and_a_result() -> None:
    told = run(Gateway(), "--max-batch-size", "16", "--json").events
    assert [each["type"] for each in told if each["type"] != "note"] == [
        "difference",
        "findings",
        "replica",
        "result",
    ]
    assert told[0]["fields"] == {"max_batch_size": 16}
    assert "+max_batch_size: 16" in told[0]["lines"]
    assert told[-1]["ok"] and told[-1]["changed"]


def test_what_lint_refuses_is_told_finding_by_finding() -> None:
    refused = error("check_failed", "it is not changed", f"{FINDING}; {FINDING}")
    gateway = Gateway(dry_refusal=(422, refused))
    done = run(gateway, "--off")
    assert (done.returncode, len(gateway.puts)) == (7, 1)
    assert f"why: {FINDING}" in done.stderr
    done = run(gateway, "--off", "--json")
    last = done.events[-1]
    assert (last["ok"], last["exit"], last["code"]) == (False, 7, "check_failed")
    assert last["findings"] == [FINDING, FINDING]


def test_a_label_names_a_version_and_no_selector_the_newest() -> None:
    gateway = Gateway()
    assert run(gateway, "--max-batch-size", "8", which="m:stable").returncode == 0
    assert run(gateway, "--max-batch-size", "8", which="m").returncode == 0
    assert run(gateway, "--max-batch-size", "8", which="m:none").returncode == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "no change was specified"),
        (("--delay", "5"), "--delay: '5' has no unit"),
        (("--watch", "60", "--off"), "--watch: '60' has no unit"),
    ],
)
def test_bad_values_are_told_with_what_to_try(words: tuple[str, ...], said: str) -> None:
    gateway = Gateway()
    done = run(gateway, *words)
    assert done.returncode == 2 and gateway.puts == []
    assert said in done.stderr and "try:" in done.stderr
