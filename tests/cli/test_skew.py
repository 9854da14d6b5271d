"""`servegate model skew`: exit status 7 for a skew, which is explained; offline or over the API."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import Done, servegate
from cli.http_servers import Request, answering

RECORD = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32", "scale": [1, 255]}
PICTURES = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
TENSORS = (PICTURES.astype(np.float32) * np.float32(1 / 255))[..., np.newaxis]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a record and samples that fit it."""
    (tmp_path / "preprocessing.json").write_text(json.dumps({"inputs": {"x": RECORD}}))
    np.savez(tmp_path / "samples.npz", **{"raw/x": PICTURES, "tensor/x": TENSORS})
    return tmp_path


class Gateway:
    """An admin API that answers with `page` and keeps what it was asked."""

    def __init__(self) -> None:
        self.url = ""
        self.page: dict[str, Any] = {"skewed": False, "inputs": []}
        self.asked: list[tuple[str, bytes]] = []

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, {"labels": {"stable": 2}, "versions": [{"version": 2}]}
        self.asked.append((request.path, request.body))
        return 200, self.page


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    one = Gateway()
    with answering(one.answer) as one.url:
        yield one


def here(folder: Path, *more: str) -> Done:
    words = ("--preprocessing", "preprocessing.json", "--samples", "samples.npz", *more)
    return servegate("model", "skew", *words, folder=folder)


def over(gateway: Gateway, folder: Path, name: str, *more: str) -> Done:
    words = (name, "--samples", "samples.npz", "--admin-url", gateway.url, *more)
    return servegate("model", "skew", *words, folder=folder)


def test_samples_that_fit_end_with_0(folder: Path) -> None:
    done = here(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "x: 3 of 3 samples are bit-identical to the training\n"
    page = json.loads(here(folder, "--json").stdout)
    assert (page["skewed"], page["inputs"][0]["rows"]) == (False, 3)


def test_a_skew_ends_with_7_and_says_what_to_write_into_the_record(folder: Path) -> None:
    np.savez(folder / "samples.npz", **{"raw/x": PICTURES, "tensor/x": TENSORS * 0 + 2})
    assert "no common mistake" in here(folder).stdout
    np.savez(folder / "samples.npz", **{"raw/x": PICTURES, "tensor/x": PICTURES[..., None] * 1.0})
    done = here(folder)
    assert (done.returncode, done.stderr) == (
        7,
        "the preprocessing differs between training and serving\n",
    )
    head, *lines = done.stdout.splitlines()
    assert head.startswith("x: 0 of 3")
    assert "  cause: in training pixels are not scaled (0 to 255)" in lines
    assert '    in preprocessing.json: {"scale": null}' in lines


def test_a_gateway_checks_the_version_that_is_named(gateway: Gateway, folder: Path) -> None:
    names = {"m": "", "m@3": "?version=3", "m:stable": "?version=2"}
    assert {over(gateway, folder, name).returncode for name in names} == {0}
    sent = (folder / "samples.npz").read_bytes()
    assert gateway.asked == [(f"/api/models/m/skew{query}", sent) for query in names.values()]
    gateway.page = {"skewed": True, "inputs": []}
    done = over(gateway, folder, "m", "--json")
    assert done.returncode == 7 and json.loads(done.stdout) == gateway.page


def test_what_cannot_be_checked_ends_with_2_and_says_why(folder: Path) -> None:
    (folder / "list.json").write_text("[]")
    with (folder / "large.npz").open("wb") as large:
        large.truncate((1 << 23) + 1)
    for words, said in (
        ("", "the command needs --samples"),
        ("m", "the command needs --samples"),
        ("--samples samples.npz", "the command needs --samples"),
        ("m --samples none.npz", "none.npz cannot be read"),
        ("m --samples large.npz", "fewer samples, or --preprocessing FILE"),
        ("--preprocessing none.json --samples samples.npz", "none.json cannot be read"),
        ("--preprocessing samples.npz --samples samples.npz", "is not valid JSON"),
        ("--preprocessing list.json --samples samples.npz", "does not contain a JSON object"),
        ("--preprocessing preprocessing.json --samples list.json", "not a readable NPZ archive"),
    ):
        done = servegate("model", "skew", *words.split(), folder=folder)
        assert done.returncode == 2, words
        assert said in done.stderr and "Traceback" not in done.stderr
