"""`servegate batching lint`: of a running version, of its edited configuration, and of folders."""

import json
import shutil
from pathlib import Path

import pytest
from cli.commands import Done, servegate

from .configured_gateway import FOREIGN, WARNING, Gateway, error, serving

REPOSITORY = Path(__file__).parents[2] / "model_repo"
ERRORS = (
    "max_batch_size: it is -1. Fix: 0 or more [batch-size-negative]; "
    "flavour 'f': response_cache: it cannot be used with sequences. "
    "Fix: response_cache { enable: false } [cache-unsupported]"
)


def run(gateway: Gateway, *words: str) -> Done:
    with serving(gateway) as url:
        return servegate("batching", "lint", "m@3", *words, "--admin-url", url)


def lint(*words: object) -> Done:
    return servegate("batching", "lint", *words)


def test_the_present_findings_about_batching_are_a_table() -> None:
    gateway = Gateway(findings=[WARNING, FOREIGN])
    done = run(gateway)
    assert done.returncode == 0 and gateway.puts == []
    header, row = (line.split("\t") for line in done.stdout.splitlines())
    assert header == ["severity", "field", "why", "fix", "rule"]
    assert dict(zip(header, row, strict=True)) == WARNING
    done = run(Gateway(findings=()))
    assert (done.returncode, done.stdout) == (0, "")
    assert "no findings" in done.stderr


def test_flags_ask_for_the_edited_configuration_without_changing_it() -> None:
    gateway = Gateway()
    done = run(gateway, "--preferred", "4", "--json")
    [(query, body, _)] = gateway.puts
    assert query == "dry_run=true"
    assert body["fields"]["dynamic_batching"] == {"preferred_batch_size": [4]}
    assert json.loads(done.stdout)["findings"] == [WARNING]


def test_errors_of_the_edited_configuration_end_with_1() -> None:
    gateway = Gateway(dry_refusal=(422, error("check_failed", "it is not changed", ERRORS)))
    done = run(gateway, "--off", "--json")
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
