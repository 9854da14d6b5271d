"""The registry: models read from a folder; what is wrong with one harms no other."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from builders import write_model

from serve.control.registry import Loadable, Registry, discovered
from serve.core.errors import Invalid
from serve.triton import config as triton_config

ENSEMBLE = """
platform: "ensemble"
ensemble_scheduling { step [ { model_name: "one" }, { model_name: "two" } ] }
"""


def scanned(repository: Path) -> Registry:
    registry = Registry(repository)
    registry.scan()
    return registry


def only(repository: Path) -> Loadable:
    [model] = scanned(repository).models.values()
    return model


def test_every_folder_is_a_model_with_its_versions(tmp_path: Path) -> None:
    write_model(tmp_path, "digits", 2, 10, 1)
    write_model(tmp_path, "other", 3)
    models = scanned(tmp_path).models
    assert {name: model.versions for name, model in models.items()} == {
        "digits": (1, 2, 10),
        "other": (3,),
    }


def test_files_and_hidden_folders_of_the_repository_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("hello")
    (tmp_path / ".git").mkdir()
    assert scanned(tmp_path).models == {}


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("", (3,)),
        ("version_policy { latest { num_versions: 2 } }", (2, 3)),
        ("version_policy { all { } }", (1, 2, 3)),
        ("version_policy { specific { versions: [ 1, 3, 9 ] } }", (1, 3)),
    ],
)
def test_the_version_policy_says_what_is_wanted(
    tmp_path: Path, policy: str, wanted: tuple[int, ...]
) -> None:
    write_model(tmp_path, "m", 1, 2, 3, config=f'backend: "x" {policy}')
    assert only(tmp_path).wanted == wanted


def test_without_a_configuration_triton_completes_it_and_serves_the_newest(tmp_path: Path) -> None:
    write_model(tmp_path, "m", 1, 2, config=None)
    model = only(tmp_path)
    assert (model.configuration, model.wanted, model.problem) == (None, (2,), "")


def test_what_was_recorded_with_a_model_comes_along(tmp_path: Path) -> None:
    config = 'backend: "x" output [ { name: "p" label_filename: "labels.txt" } ]'
    folder = write_model(tmp_path, config=config)
    (folder / "labels.txt").write_text("zero\none\n")
    (folder / "preprocessing.json").write_text('{"scale": 2}')
    (folder / "model_card.json").write_text('{"summary": "s"}')
    model = only(tmp_path)
    assert model.labels == {"p": ("zero", "one")}
    assert (model.preprocessing, model.card) == ({"scale": 2}, {"summary": "s"})


def test_an_ensemble_names_the_models_it_is_made_of(tmp_path: Path) -> None:
    write_model(tmp_path, "both", 1, config=ENSEMBLE)
    assert only(tmp_path).composing_models == ("one", "two")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("config.pbtxt", 'backend: "x"\nnonsense: 1\n', "line 2"),
        ("config.pbtxt", 'backend: "x"\n\ninput [\n  { dims: [ a ] }\n]', "line 4"),
        ("config.pbtxt", "version_policy { specific { versions: 9 } }", "names no version"),
        ("config.pbtxt", 'output { label_filename: "gone" }', "'gone' does not exist"),
        ("config.pbtxt", 'output { label_filename: "../x" }', "outside"),
        ("config.pbtxt", 'output { label_filename: "/etc/passwd" }', "outside"),
        ("config.pbtxt", "\udcff", "not UTF-8"),
        ("config.pbtxt", "#" * ((1 << 20) + 1), "larger than"),
        ("model_card.json", "{", "not JSON"),
        ("model_card.json", "[]", "must hold a JSON object"),
        ("model_card.json", "[" * 200_000, "not JSON"),
        ("preprocessing.json", "1", "must hold a JSON object"),
    ],
    ids=lambda value: value[:24],
)
def test_a_model_that_cannot_be_read_is_shown_with_its_problem_and_harms_no_other(
    tmp_path: Path, file: str, text: str, problem: str
) -> None:
    folder = write_model(tmp_path, "broken")
    write_model(tmp_path, "good")
    (folder / file).write_bytes(text.encode("utf-8", "surrogateescape"))
    models = scanned(tmp_path).models
    assert problem in models["broken"].problem
    assert (models["broken"].wanted, models["broken"].configuration) == ((), None)
    assert (models["good"].problem, models["good"].wanted) == ("", (1, 2))


def test_a_model_without_versions_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "m" / "01").mkdir(parents=True)
    assert "no version folder" in only(tmp_path).problem


def test_a_name_that_http_could_not_ask_for_is_a_problem(tmp_path: Path) -> None:
    write_model(tmp_path, "two words")
    assert "cannot be the name of a model" in only(tmp_path).problem


@contextmanager
def open_to_nobody() -> Iterator[Path]:
    """A repository that a user without rights may look at, and that user's rights inside."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        locked = write_model(folder, "locked")
        write_model(folder, "good")
        locked.chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)
        try:
            yield folder
        finally:
            os.seteuid(user)
            locked.chmod(0o700)


def test_a_folder_that_may_not_be_read_harms_no_other() -> None:
    with open_to_nobody() as repository:
        models = scanned(repository).models
    assert models["good"].wanted == (1, 2)


def test_a_scan_says_whether_anything_changed(tmp_path: Path) -> None:
    registry = Registry(tmp_path)
    assert not registry.scan()
    folder = write_model(tmp_path)
    assert registry.scan()
    assert not registry.scan()
    (folder / "3").mkdir()
    assert registry.scan()


def test_a_model_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    write_model(tmp_path, "same")
    changed = write_model(tmp_path, "changed")
    registry = scanned(tmp_path)
    before = dict(registry.models)
    (changed / "config.pbtxt").write_text('backend: "another one"')
    registry.scan()
    assert registry.models["same"] is before["same"]
    assert registry.models["changed"] is not before["changed"]
    assert registry.models["changed"].configuration != before["changed"].configuration


def test_a_model_whose_problem_was_repaired_is_served(tmp_path: Path) -> None:
    folder = write_model(tmp_path, config="{")
    registry = scanned(tmp_path)
    assert registry.models["m"].problem
    (folder / "config.pbtxt").write_text('backend: "x"')
    registry.scan()
    assert (registry.models["m"].problem, registry.models["m"].wanted) == ("", (2,))


def test_a_folder_that_has_gone_is_no_model_any_more(tmp_path: Path) -> None:
    write_model(tmp_path).rename(tmp_path / ".gone")
    assert scanned(tmp_path).models == {}


def test_a_file_that_vanishes_during_the_scan_does_not_take_its_model_away(tmp_path: Path) -> None:
    # The listing of one's own open files names the one that listed them, which has gone since.
    hidden = write_model(tmp_path, ".m")
    visible = tmp_path / "m"
    visible.symlink_to(hidden)
    registry = scanned(tmp_path)
    assert set(registry.models) == {"m"}
    visible.unlink()
    visible.symlink_to("/proc/self/fd")
    registry.scan()
    assert set(registry.models) == {"m"}


def test_a_repository_that_cannot_be_read_keeps_what_was_read_last(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    write_model(repository)
    registry = scanned(repository)
    repository.rename(tmp_path / "elsewhere")
    with pytest.raises(Invalid, match="cannot be read"):
        registry.scan()
    assert set(registry.models) == {"m"}


def test_what_replicas_hold_is_what_exists_where_there_is_no_folder() -> None:
    known = triton_config.parse('backend: "x"')
    models = discovered({"m": (1, 3), "x": (2,)}, {"m": known})
    assert models["m"] == Loadable("m", (1, 3), (1, 3), known, "")
    assert models["x"].configuration is None
