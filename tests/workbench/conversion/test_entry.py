"""Entries of converted models in a repository: whole or not at all, and nothing overwritten."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from refusals import refusal

from serve.core.errors import CheckFailed, Conflict, GateRefused, Invalid
from serve.tensors.contracts import Case, write_contract
from serve.triton.config import parse
from serve.workbench.conversion.entry import check_free, configuration, write_entry
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.report import ConversionReport, GateStep, StepResult

from .reports import REFUSED, X, Y, report, work_folder


def files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def test_an_entry_is_a_model_folder_with_contract_and_report(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())
    entry = write_entry(work, report(), name="digits", out=tmp_path / "repo")
    assert entry == tmp_path / "repo/digits"
    assert files(entry) == [
        *("1/model.onnx", "config.pbtxt", "contract/case-0.npz", "contract/contract.json"),
        *("conversion.html", "conversion.json"),
    ]
    page = json.loads((entry / "conversion.json").read_bytes())
    assert page["command"].endswith(f"--name digits --out {tmp_path / 'repo'} --seed 7")
    assert ConversionReport.from_json(page).passed


def test_the_configuration_batches_and_warms_up_at_one_row_and_the_largest_batch() -> None:
    message = parse(configuration("m", report(), {"x": (2, 3)})).message
    assert message.max_batch_size == 8 and message.HasField("dynamic_batching")
    assert [sample.batch_size for sample in message.model_warmup] == [1, 8]


def test_rows_that_depend_on_their_neighbours_are_not_batched() -> None:
    message = parse(configuration("m", report(is_batched=False), {"x": (2, 3)})).message
    assert (message.max_batch_size, message.HasField("dynamic_batching")) == (0, False)
    (sample,) = message.model_warmup
    assert list(sample.inputs["x"].dims) == [2, 3]


def test_a_warm_up_of_zeros_is_left_out_where_the_source_refuses_it(tmp_path: Path) -> None:
    """Triton's backend dies where a warm-up fails, as that of a text which is no number does."""

    def warmed(name: str, *cases: Case) -> bool:
        work = work_folder(tmp_path / name, report())
        for path, data in write_contract(cases).items():
            (work / path).write_bytes(data)
        entry = write_entry(work, report(), name=name, out=tmp_path / "repo")
        return bool(parse((entry / "config.pbtxt").read_text()).message.model_warmup)

    def case(name: str, x: object) -> Case:
        return Case({"x": np.asarray(x)}, {"y": np.ones((1, 3), np.float32)}, name)

    ones = case("ones", np.ones((1, 3), np.float32))
    assert warmed("taken", ones, case("zeros", np.zeros((1, 3), np.float32)))
    assert not warmed("not-taken", ones)
    assert not warmed("texts", ones, case("zeros", np.array([[b"0", b"", b""]], object)))


def test_the_last_word_is_had_on_the_whole_entry_and_goes_into_its_report(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())
    seen: list[list[str]] = []

    def load(repository: Path) -> StepResult:
        (model,) = repository.iterdir()
        seen.append([model.name, *sorted(path.name for path in model.iterdir())])
        return StepResult(GateStep.SERVING, True, "loaded")

    entry = write_entry(work, report(), name="m", out=tmp_path / "repo", load=load)
    shown = ["1", "config.pbtxt", "contract", "conversion.html", "conversion.json"]
    assert seen == [["m", *shown]]
    page = json.loads((entry / "conversion.json").read_bytes())
    assert page["steps"][-1]["summary"] == "loaded"
    assert [path.name for path in (tmp_path / "repo").iterdir()] == ["m"]


def test_what_the_gate_has_refused_or_does_not_load_is_never_written(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())

    def load(_: Path) -> StepResult:
        raise failed("not_served", "it did not load")

    out = tmp_path / "repo"
    refusal(GateRefused, write_entry, work, report(), name="m", out=out, load=load)
    refused = refusal(Invalid, write_entry, work, report(REFUSED), name="m", out=out)
    assert "did not pass the gate" in str(refused)
    assert not out.exists()


def test_nothing_is_overwritten_and_a_further_version_is_offered(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())
    entry = write_entry(work, report(), name="m", out=tmp_path)
    before = (entry / "conversion.json").read_bytes()
    refused = refusal(Conflict, write_entry, work, report(is_batched=False), name="m", out=tmp_path)
    assert "--as-version 2" in refused.try_this
    assert (entry / "conversion.json").read_bytes() == before


def test_a_further_version_brings_its_contract_and_keeps_the_configuration(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())
    entry = write_entry(work, report(), name="m", out=tmp_path)
    config = (entry / "config.pbtxt").read_text() + "# by hand\n"
    (entry / "config.pbtxt").write_text(config)
    again = work_folder(tmp_path / "again", report(), rows=5, model=b"another")
    write_entry(again, report(warnings=("second",)), name="m", out=tmp_path, version=2)
    assert (entry / "2/model.onnx").read_bytes() == b"another"
    assert (entry / "1/model.onnx").read_bytes() == b"not read"
    assert (entry / "config.pbtxt").read_text() == config
    assert json.loads((entry / "conversion.json").read_bytes())["warnings"] == ["second"]
    case = (again / "contract/case-0.npz").read_bytes()
    assert (entry / "contract/case-0.npz").read_bytes() == case
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_configuration_that_does_not_fit_leaves_the_entry_as_it_is(tmp_path: Path) -> None:
    work = work_folder(tmp_path / "work", report())
    entry = write_entry(work, report(), name="m", out=tmp_path)
    wide = {**X, "shape": [-1, 4]}
    other = report(model={**report().model, "inputs": [wide], "outputs": [Y]})
    with pytest.raises(CheckFailed, match="does not fit"):
        write_entry(work_folder(tmp_path / "b", other), other, name="m", out=tmp_path, version=2)
    assert not (entry / "2").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_name_cannot_lead_out_of_the_repository(tmp_path: Path) -> None:
    for name in ("../m", "a/b", "", ".hidden"):
        refused = refusal(
            Invalid, write_entry, tmp_path, report(), name=name, out=tmp_path / "repo"
        )
        assert "is not a valid model name" in str(refused)


def test_a_folder_that_is_no_model_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m/notes.txt").write_text("mine")
    with pytest.raises(Conflict, match="already exists"):
        check_free(tmp_path / "m")


def test_a_folder_that_cannot_be_written_is_told_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to("gone")
    for out in ("file", "file/below", "nowhere", b"\xff".decode(errors="surrogateescape")):
        assert "cannot write to" in str(refusal(Invalid, check_free, tmp_path / out / "m"))


def test_a_draft_that_a_killed_command_has_left_is_swept(tmp_path: Path) -> None:
    left = tmp_path / "repo/.digits.0123456789ab"
    left.mkdir(parents=True)
    os.utime(left, (1, 1))
    work = work_folder(tmp_path / "work", report())
    write_entry(work, report(), name="digits", out=tmp_path / "repo")
    assert [path.name for path in (tmp_path / "repo").iterdir()] == ["digits"]
