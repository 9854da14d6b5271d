"""`servegate model skew`: exit status 7 for a skew, which is explained; offline or over the API."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.commands import Done, servegate

RECORD = {"kind": "image", "color": "grey", "layout": "HWC", "dtype": "FP32", "scale": [1, 255]}
PICTURES = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
TENSORS = (PICTURES.astype(np.float32) * np.float32(1 / 255))[..., np.newaxis]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a record and samples that fit it."""
    (tmp_path / "preprocessing.json").write_text(json.dumps({"inputs": {"x": RECORD}}))
    np.savez(tmp_path / "samples.npz", **{"raw/x": PICTURES, "tensor/x": TENSORS})
    return tmp_path


class Gateway(ThreadingHTTPServer):
    """An admin API that answers with `page` and keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.page: dict[str, Any] = {"skewed": False, "inputs": []}
        self.asked: list[tuple[str, bytes]] = []


class _Handler(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self._say({"labels": {"stable": 2}, "versions": [{"version": 2}]})

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        self.server.asked.append((self.path, self.rfile.read(length)))
        self._say(self.server.page)

    def _say(self, page: Any) -> None:
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on stderr."""


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def here(folder: Path, *more: str) -> Done:
    words = ("--preprocessing", "preprocessing.json", "--samples", "samples.npz", *more)
    return servegate("model", "skew", *words, folder=folder)


def over(gateway: Gateway, folder: Path, name: str, *more: str) -> Done:
    url = f"http://127.0.0.1:{gateway.server_port}"
    words = (name, "--samples", "samples.npz", "--admin-url", url, *more)
    return servegate("model", "skew", *words, folder=folder)


def test_samples_that_fit_end_with_0(folder: Path) -> None:
    done = here(folder)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "x: 3 of 3 samples become the training's tensor bit for bit\n"


def test_a_skew_ends_with_7_and_says_what_to_write_into_the_record(folder: Path) -> None:
    np.savez(folder / "samples.npz", **{"raw/x": PICTURES, "tensor/x": TENSORS * 0 + 2})
    assert "none of the common mistakes" in here(folder).stdout
    np.savez(folder / "samples.npz", **{"raw/x": PICTURES, "tensor/x": PICTURES[..., None] * 1.0})
    done = here(folder)
    assert (done.returncode, done.stderr) == (7, "training and serving differ\n")
    head, *lines = done.stdout.splitlines()
    assert head.startswith("x: 0 of 3")
    assert "  cause: in training pixels are not scaled, they reach to 255" in lines
    assert '    in preprocessing.json: {"scale": null}' in lines


def test_json_is_what_the_api_answers(folder: Path) -> None:
    page = json.loads(here(folder, "--json").stdout)
    assert (page["skewed"], page["inputs"][0]["rows"]) == (False, 3)


@pytest.mark.parametrize(
    ("name", "query"), [("m", ""), ("m@3", "?version=3"), ("m:stable", "?version=2")]
)
def test_a_gateway_checks_the_version_that_is_named(
    gateway: Gateway, folder: Path, name: str, query: str
) -> None:
    assert over(gateway, folder, name).returncode == 0
    sent = (folder / "samples.npz").read_bytes()
    assert gateway.asked == [(f"/api/models/m/skew{query}", sent)]


def test_what_a_gateway_finds_is_told_as_is_and_ends_with_7(gateway: Gateway, folder: Path) -> None:
    gateway.page = {"skewed": True, "inputs": []}
    done = over(gateway, folder, "m", "--json")
    assert done.returncode == 7 and json.loads(done.stdout) == gateway.page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "what is checked against what?"),
        (("m",), "what is checked against what?"),
        (("--samples", "samples.npz"), "what is checked against what?"),
        (("m", "--samples", "none.npz"), "none.npz cannot be read"),
        (("--preprocessing", "none.json", "--samples", "samples.npz"), "none.json cannot be read"),
        (("--preprocessing", "samples.npz", "--samples", "samples.npz"), "is not JSON"),
        (("--preprocessing", "list.json", "--samples", "samples.npz"), "must hold a JSON object"),
        (("--preprocessing", "preprocessing.json", "--samples", "list.json"), "no readable NPZ"),
        (("m", "--samples", "large.npz"), "fewer samples, or --preprocessing FILE"),
    ],
)
def test_what_cannot_be_checked_ends_with_2_and_says_why(
    folder: Path, words: tuple[str, ...], said: str
) -> None:
    (folder / "list.json").write_text("[]")
    with (folder / "large.npz").open("wb") as large:
        large.truncate((1 << 23) + 1)
    done = servegate("model", "skew", *words, folder=folder)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
