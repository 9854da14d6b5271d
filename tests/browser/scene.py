"""The gateway that the browser looks at: the demo's digits in two versions, and neighbours.

| model    | what it is for                                                                   |
|----------|----------------------------------------------------------------------------------|
| digits   | two versions with labels and a split 90:10, as in the demo, but published        |
| HOSTILE  | a name as long as allowed words go, and every text about it an attack            |
| plain    | a folder beside, not published                                                   |
| broken   | a folder whose file is no model                                                  |
"""

import base64
import contextlib
import csv
import io
import json
import shutil
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import harness
import pushing
from workbench.loadtest.records import report_of, run_of

ATTACK = "\"'><script>hurt=1</script><img src=x onerror=hurt=1><svg onload=hurt=1>{{7*7}}"
LINK = "javascript:hurt=1"
HOSTILE = "__proto__." + "a-model-with-a-name-that-does-not-end." * 3 + "x"
HELD_OUT, ROWS = "held-out", 500
HOSTILE_DATA = "constructor"
REPORT, EARLIER = "20261122-101500-digits-smoke", "20261121-101500-digits-smoke"
DIGITS = harness.ROOT / "model_repo/digits"
SEVEN, DISAGREE = (harness.ROOT / f"examples/digits/{name}.png" for name in ("seven", "disagree"))


class Stage:
    """The running gateway, and what is made in it once somebody asks for it; most of it by an id.

    At first there are the models but for HOSTILE, and a split of digits.
    """

    def __init__(self, up: harness.Up, folder: Path) -> None:
        self.up = up
        self._folder = folder

    def __getitem__(self, name: str) -> str:
        """So that the path of a page makes what it needs."""
        return str(getattr(self, name))

    def make_everything(self) -> None:
        """All of it, as pages with lists show it."""
        for name, value in vars(Stage).items():
            if isinstance(value, cached_property):
                getattr(self, name)

    @cached_property
    def hostile(self) -> str:
        publish_hostile(self.up, self._folder / "hostile")
        return HOSTILE

    @cached_property
    def reports(self) -> tuple[str, str]:
        """Two load reports whose words attack, the earlier one first."""
        report = replace(report_of(run_of(3, 20.0)), model="digits", title=ATTACK)
        for name in (EARLIER, REPORT):
            one = replace(report, name=name, findings=(ATTACK, LINK))
            call(self.up, "POST", "/api/load/reports", one.to_json())
        return EARLIER, REPORT

    @property
    def earlier(self) -> str:
        return self.reports[0]

    @property
    def report(self) -> str:
        return self.reports[1]

    @cached_property
    def data(self) -> str:
        upload_pictures(self.up, HELD_OUT, held_out(ROWS))
        return HELD_OUT

    @cached_property
    def hostile_data(self) -> str:
        upload_pictures(self.up, HOSTILE_DATA, hostile_rows())
        return HOSTILE_DATA

    @cached_property
    def tried(self) -> str:
        return attempt(self.up, "digits", "1", "2")

    @cached_property
    def hostile_try(self) -> str:
        return attempt(self.up, self.hostile, "1", "__proto__")

    @cached_property
    def evaluation(self) -> str:
        return evaluate(self.up, "digits", self.data, "1", "2")

    @cached_property
    def hostile_evaluation(self) -> str:
        return evaluate(self.up, self.hostile, self.hostile_data, "1", "1")

    @cached_property
    def revision(self) -> int:
        """The first change of the split."""
        revision: int = self.up.get("/api/history?kind=route&key=digits")[-1]["revision"]
        return revision


@contextlib.contextmanager
def gateway(folder: Path) -> Iterator[Stage]:
    """A `servegate up` for it; ends with the block."""
    plain(folder / "models")
    flags = ("--model-repo", str(folder / "models"), "--replicas", "1", "--workers", "1")
    with harness.up(folder / "state", *flags, "--quarantine", "off") as up:
        publish_digits(up, folder / "digits")
        up.split("digits", v1=50, v2=50)
        up.split("digits", v1=90, v2=10)
        yield Stage(up, folder)


def plain(repository: Path) -> None:
    """Two folders as Triton's users have them: a model, and one that cannot be loaded."""
    for name in ("plain", "broken"):
        pushing.source(repository / name, 2.0)
    (repository / "broken/1/model.onnx").write_bytes(b"no model")


def publish_digits(up: harness.Up, folder: Path) -> None:
    for number in (1, 2):
        publish(up, digits(folder / str(number), number), "digits")
    up.put("/api/models/digits/labels/stable", {"version": 1})
    up.put("/api/models/digits/labels/candidate", {"version": 2})
    up.split("digits", v1=90, v2=10)


def digits(folder: Path, number: int) -> Path:
    shutil.copytree(DIGITS, folder, ignore=shutil.ignore_patterns("[0-9]"))
    shutil.copytree(DIGITS / str(number), folder / "1")
    return folder


def publish_hostile(up: harness.Up, folder: Path) -> None:
    """The demo's first version, but every text that comes with it, or is said of it, attacks."""
    digits(folder, 1)
    (folder / "labels.txt").write_text("\n".join(f"{n}{ATTACK}" for n in range(10)) + "\n")
    card = {ATTACK: ATTACK, "summary": ATTACK, "link": LINK, "deep": {"list": [ATTACK, {LINK: 1}]}}
    (folder / "model_card.json").write_text(json.dumps(card))
    tags = {"__proto__": ATTACK, "constructor": LINK}
    ask = {"source": ATTACK, "git_commit": LINK, "tags": tags, "tools": {"</script>": ATTACK}}
    publish(up, folder, HOSTILE, **ask)
    said = {"servegate-author": quote(ATTACK), "servegate-reason": quote(f"{ATTACK} {LINK}")}
    for label in ("constructor", "__proto__"):
        call(up, "PUT", f"/api/models/{HOSTILE}/labels/{label}", {"version": 1}, **said)
    for weight in (1, 2):  # so that there is something to go back to
        call(up, "PUT", f"/api/routes/{HOSTILE}", {"split": {"1": weight}}, **said)


def publish(up: harness.Up, folder: Path, name: str, **ask: object) -> int:
    number = pushing.publish(up, folder, name, **ask)
    pushing.wait_state(up, name, number, "ready", "serving")
    return number


def attempt(up: harness.Up, model: str, a: str, b: str) -> str:
    """Try two versions on the picture that they disagree on; gives its id."""
    data = base64.b64encode(DISAGREE.read_bytes()).decode()
    inputs = {"": {"form": "image", "data": data, "name": f"{ATTACK}.png"}}
    made = call(up, "POST", "/api/tries", {"model": model, "a": a, "b": b, "inputs": inputs})
    return str(made["id"])


def held_out(count: int) -> dict[str, bytes]:
    """The first held-out digits as pictures in folders named after the digit."""
    data = harness.load_example("examples/digits/data.py")
    pictures, labels = data.pictures()
    rows = data.held_out_rows()[:count]
    return {f"{labels[row]}/{row:04}.png": data.png(pictures[row]) for row in rows}


def hostile_rows() -> dict[str, bytes]:
    names = [f'"><img src=x onerror=hurt={n}>.png' for n in range(3)]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(("path", "label", ATTACK))
    writer.writerows((name, f"{n}{ATTACK}", LINK) for n, name in enumerate(names, 6))
    return dict.fromkeys(names, SEVEN.read_bytes()) | {"labels.csv": table.getvalue().encode()}


def upload_pictures(up: harness.Up, name: str, files: dict[str, bytes]) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path, data in files.items():
            archive.writestr(path, data)
    upload(up, name, packed.getvalue(), "zip")


def upload(up: harness.Up, name: str, data: bytes, form: str) -> None:
    url = f"{up.admin}/api/datasets/{name}?format={form}"
    asked = urllib.request.Request(url, data, method="PUT")
    try:
        urllib.request.urlopen(asked, timeout=30).close()
    except urllib.error.HTTPError as error:
        raise AssertionError(error.read().decode()) from error


def evaluate(up: harness.Up, model: str, dataset: str, a: str, b: str, **more: Any) -> str:
    gates = ["accuracy(b)>=0.95", "accuracy(a)>=0.99"]
    body = {"model": model, "dataset": dataset, "a": a, "b": b, "gates": gates, **more}
    identity = call(up, "POST", "/api/evaluations", body)["id"]
    harness.until(lambda: up.get(f"/api/evaluations/{identity}")["state"] == "done")
    return str(identity)


def call(up: harness.Up, method: str, path: str, body: Any = None, **headers: str) -> Any:
    status, answer = harness.request(up.admin + path, method, body, **headers)
    assert status < 300, answer
    return answer


class Guarded:
    """A gateway that asks for keys, without any Triton; `admin` is a key."""

    def __init__(self, up: harness.Up) -> None:
        self.up = up
        self._secret = (up.state / "secret").read_text()
        self.admin = self.make("admin")

    def make(self, role: str) -> dict[str, Any]:
        """A key, with its `id` and what is shown: `key`."""
        made: dict[str, Any] = self._call("POST", "/api/keys?wait=30", {"role": role})
        return made

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        return call(self.up, method, path, body, authorization=f"Bearer {self._secret}")


@contextlib.contextmanager
def guarded(folder: Path) -> Iterator[Guarded]:
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--auth", "keys")
    with harness.up(folder / "state", *flags, "--quarantine", "off") as up:
        yield Guarded(up)
