"""Access on the real program: role, verb, transport and model; what is not there tells nothing."""

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import harness
import pytest
from access_scene import (
    ABSENT,
    FORBIDDEN,
    HEALTH,
    MANAGEMENT,
    OF_A_MODEL,
    OF_THE_SERVER,
    OPEN,
    SECRET,
    SERVED,
    UNAUTHENTICATED,
    Caller,
    repository,
)
from ports import free_ports

pytestmark = pytest.mark.triton

WRONG = "sg_0123456789_" + "x" * 43


class Guarded:
    """A gateway with keys, and the callers that have them."""

    def __init__(self, up: harness.Up) -> None:
        self.up = up
        self.words = {
            "none": "",
            "wrong": WRONG,
            "limited": self.make("predictor", OPEN)["key"],
            "predictor": self.make("predictor", "*")["key"],
            "admin": self.make("admin", "*")["key"],
            "expired": self.make("predictor", "*", expires_in=0.001)["key"],
            "revoked": self.made_and_revoked(),
        }

    def caller(self, who: str) -> Caller:
        return Caller(self.up, self.words[who])

    def admin(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The admin API, by the secret that only this user can read."""
        secret = (self.up.state / "secret").read_text()
        headers = {"authorization": f"Bearer {secret}"}
        return harness.request(self.up.admin + path, method, body, **headers)

    def make(self, role: str, *models: str, **more: float) -> Any:
        body = {"role": role, "models": list(models), **more}
        status, made = self.admin("POST", "/api/keys?wait=30", body)
        assert status == 201 and made["in_force"], made
        return made

    def revoke(self, identity: str) -> Any:
        status, answer = self.admin("DELETE", f"/api/keys/{identity}?wait=30")
        assert status == 200 and answer["in_force"], answer
        return answer

    def made_and_revoked(self) -> str:
        made = self.make("admin", "*")
        self.revoke(made["id"])
        return str(made["key"])


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Two workers in front of one Triton with two models; management is open to admins."""
    folder = tmp_path_factory.mktemp("access")
    models = repository(folder / "models")
    arguments = ("--workers", "2", "--model-repo", str(models), "--allow-management")
    with harness.up(folder / "state", *arguments) as up:
        up.put(f"/api/models/{OPEN}/labels/stable", {"version": 1})
        up.put(f"/api/models/{SECRET}/labels/stable", {"version": 1})
        yield Guarded(up)


NOBODY = ("none", "wrong", "expired", "revoked")


@pytest.mark.parametrize("verb", [*OF_A_MODEL, *OF_THE_SERVER, *MANAGEMENT])
def test_without_a_valid_key_nothing_is_answered_and_all_hear_the_same(
    guarded: Guarded, verb: str
) -> None:
    call = {**OF_A_MODEL, **OF_THE_SERVER, **MANAGEMENT}[verb]
    answers = {who: call(guarded.caller(who), OPEN) for who in NOBODY}
    if verb == "grpc stream":  # the answer to a message is in the stream
        assert all(b"a valid API key is needed" in one.body for one in answers.values())
    else:
        assert {one.outcome for one in answers.values()} == {UNAUTHENTICATED}, answers
    assert len(set(answers.values())) == 1
    absent = call(guarded.caller("none"), ABSENT)
    assert absent.named(ABSENT, OPEN) == answers["none"].named(ABSENT, OPEN)


@pytest.mark.parametrize("who", ["limited", "predictor", "admin"])
@pytest.mark.parametrize("verb", OF_A_MODEL)
def test_a_key_is_served_the_models_that_it_names(guarded: Guarded, verb: str, who: str) -> None:
    answer = OF_A_MODEL[verb](guarded.caller(who), OPEN)
    assert answer.outcome == SERVED
    absent = OF_A_MODEL[verb](guarded.caller(who), ABSENT)
    assert answer.named(OPEN, ABSENT) != absent.named(OPEN, ABSENT)


@pytest.mark.parametrize("verb", OF_A_MODEL)
def test_a_model_that_a_key_does_not_name_is_like_one_that_does_not_exist(
    guarded: Guarded, verb: str
) -> None:
    limited = guarded.caller("limited")
    hidden, absent = OF_A_MODEL[verb](limited, SECRET), OF_A_MODEL[verb](limited, ABSENT)
    assert hidden.named(SECRET, ABSENT) == absent
    seen = OF_A_MODEL[verb](guarded.caller("predictor"), SECRET)
    assert seen.named(SECRET, ABSENT) != absent


@pytest.mark.parametrize("who", ["limited", "predictor", "admin"])
@pytest.mark.parametrize("verb", OF_THE_SERVER)
def test_questions_to_the_server_leave_out_what_a_key_may_not_see(
    guarded: Guarded, verb: str, who: str
) -> None:
    answer = OF_THE_SERVER[verb](guarded.caller(who), OPEN)
    assert answer.outcome == SERVED
    if "metadata" not in verb:
        assert OPEN.encode() in answer.body
        assert (SECRET.encode() in answer.body) == (who != "limited")


@pytest.mark.parametrize(
    ("who", "outcome"), [("limited", FORBIDDEN), ("predictor", FORBIDDEN), ("admin", SERVED)]
)
@pytest.mark.parametrize("verb", MANAGEMENT)
def test_only_an_admin_key_manages(guarded: Guarded, verb: str, who: str, outcome: str) -> None:
    assert MANAGEMENT[verb](guarded.caller(who), OPEN).outcome == outcome


@pytest.mark.parametrize("who", [*NOBODY, "limited", "admin"])
@pytest.mark.parametrize("verb", HEALTH)
def test_health_needs_no_key(guarded: Guarded, verb: str, who: str) -> None:
    assert HEALTH[verb](guarded.caller(who), OPEN).status in (0, 200)


@pytest.mark.parametrize(
    ("who", "status"),
    [
        *((who, 401) for who in NOBODY),
        ("limited", 403),
        ("predictor", 403),
        ("admin", 200),
    ],
)
@pytest.mark.parametrize("path", ["/api/models", "/api/keys", "/api/snapshot", "/api/replicas"])
def test_the_admin_plane_is_for_admin_keys(
    guarded: Guarded, path: str, who: str, status: int
) -> None:
    shown = {"authorization": f"Bearer {guarded.words[who]}"}
    assert harness.request(guarded.up.admin + path, **shown)[0] == status


# --- revocation ----------------------------------------------------------------------------------


def calls_of(state: Path, number: int) -> float:
    """How many calls one worker says that it has ended, asked on its own socket."""
    connection = http.client.HTTPConnection("localhost", timeout=10)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(state / f"worker-{number}.sock"))
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = re.findall(r"^servegate_(?:calls|errors)_total\{.*\} (\S+)$", text, re.MULTILINE)
    return sum(map(float, found))


def statuses(guarded: Guarded, key: str, verb: str) -> set[int]:
    """The answers of fresh connections, until each of the two workers has answered several."""
    state, caller = guarded.up.state, Caller(guarded.up, key)
    before = [calls_of(state, number) for number in (0, 1)]
    found: set[int] = set()
    for _ in range(20):
        found |= {OF_A_MODEL[verb](caller, OPEN).status for _ in range(10)}
        if all(calls_of(state, number) >= before[number] + 3 for number in (0, 1)):
            return found
    raise AssertionError("one worker was never hit")


@pytest.mark.parametrize("verb", ["http infer", "grpc infer"])
def test_a_revoked_key_is_refused_by_every_worker_once_that_is_acknowledged(
    guarded: Guarded, verb: str
) -> None:
    good, refused = (200, 401) if verb.startswith("http") else (0, 16)
    for _ in range(3):
        made = guarded.make("predictor", OPEN)
        assert statuses(guarded, made["key"], verb) == {good}
        answer = guarded.revoke(made["id"])
        assert statuses(guarded, made["key"], verb) == {refused}
        workers = guarded.admin("GET", "/api/snapshot")[1]["workers"]
        assert len(workers) == 2
        assert all(worker["generation"] >= answer["generation"] for worker in workers)


def test_a_connection_that_was_open_before_is_refused_too(guarded: Guarded) -> None:
    made = guarded.make("predictor", OPEN)
    connection = http.client.HTTPConnection(guarded.up.http, timeout=30)
    shown = {"authorization": f"Bearer {made['key']}"}
    told = []
    for _ in range(2):
        connection.request("GET", f"/v2/models/{OPEN}", headers=shown)
        answer = connection.getresponse()
        answer.read()
        told.append(answer.status)
        guarded.revoke(made["id"])
    connection.close()
    assert told == [200, 401]


def test_a_key_ends_by_itself(guarded: Guarded) -> None:
    made = guarded.make("predictor", OPEN, expires_in=1.0)
    caller = Caller(guarded.up, made["key"])
    end = time.monotonic() + 1.0  # made before, so it ends before
    seen = []
    while time.monotonic() < end + 0.5:
        seen.append((time.monotonic() >= end, caller.http("GET", f"/v2/models/{OPEN}").status))
    assert {status for late, status in seen if late} == {401}


# --- the command line ----------------------------------------------------------------------------


def test_the_command_line_is_let_in_by_the_state_folder_or_a_key(
    guarded: Guarded, tmp_path: Path
) -> None:
    up = guarded.up
    here = {"SERVEGATE_STATE": str(up.state), "SERVEGATE_ADMIN_URL": up.admin}
    listed = harness.servegate("key", "ls", "--json", env=here)
    assert listed.returncode == 0, listed.stderr
    assert guarded.words["admin"].split("_")[1] in {key["id"] for key in json.loads(listed.stdout)}
    elsewhere = {"SERVEGATE_STATE": str(tmp_path), "SERVEGATE_ADMIN_URL": up.admin}
    refused = harness.servegate("model", "ls", env=elsewhere)
    assert refused.returncode == 4 and "--key-file" in refused.stderr
    key_file = tmp_path / "key"
    for who, code in (("admin", 0), ("predictor", 4)):
        key_file.write_text(guarded.words[who])
        shown = harness.servegate("model", "ls", "--key-file", str(key_file), env=elsewhere)
        assert shown.returncode == code, shown.stderr


@pytest.mark.parametrize("transport", [(), ("--grpc",)])
def test_infer_shows_the_key_on_both_transports(
    guarded: Guarded, tmp_path: Path, transport: tuple[str, ...]
) -> None:
    up = guarded.up
    where = {
        "SERVEGATE_STATE": str(tmp_path),
        "SERVEGATE_URL": f"http://{up.http}",
        "SERVEGATE_GRPC_URL": up.grpc,
        "SERVEGATE_ADMIN_URL": up.admin,
    }
    asked = ("infer", OPEN, "--input", "random", *transport)
    refused = harness.servegate(*asked, env=where)
    assert refused.returncode == 4 and "API key" in refused.stderr
    shown = harness.servegate(*asked, env=where | {"SERVEGATE_KEY": guarded.words["limited"]})
    assert shown.returncode == 0, shown.stderr


def test_a_key_made_before_the_start_closes_the_gateway_from_its_first_call(
    tmp_path: Path,
) -> None:
    state = tmp_path / "state"
    (port,) = free_ports(1)
    offline = {"SERVEGATE_STATE": str(state), "SERVEGATE_ADMIN_PORT": str(port)}
    made = harness.servegate("key", "create", "--role", "predictor", env=offline)
    assert made.returncode == 0, made.stderr
    with harness.up(state, "--workers", "1") as up:
        infer = OF_A_MODEL["http infer"]
        assert infer(Caller(up, ""), "digits").status == 401
        assert infer(Caller(up, made.stdout.strip()), "digits").status == 200
