"""Keys on the real program, over TLS: what each verb of each transport says to whom.

Which role may do what is decided, and tested exhaustively, in `serve.core.access`.
"""

import json
from pathlib import Path

import harness
import pytest
from guarding import (
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
    Guarded,
)

pytestmark = pytest.mark.triton

UNKNOWN = ("none", "wrong", "expired", "revoked")
GOOD = ("limited", "predictor", "admin")


def test_without_a_valid_key_every_verb_refuses_in_the_same_words(guarded: Guarded) -> None:
    for verb, call in {**OF_A_MODEL, **OF_THE_SERVER, **MANAGEMENT}.items():
        answers = {name: call(guarded.caller(name), OPEN) for name in UNKNOWN}
        if verb == "grpc stream":  # the answer to a message is in the stream
            assert all(b"a valid API key is required" in one.body for one in answers.values())
        else:
            outcomes = {one.outcome for one in answers.values()}
            assert outcomes == {UNAUTHENTICATED}, (verb, answers)
        assert len(set(answers.values())) == 1, (verb, answers)
        absent = call(guarded.caller("none"), ABSENT)
        assert absent.named(ABSENT, OPEN) == answers["none"].named(ABSENT, OPEN), verb


def test_a_model_that_a_key_does_not_name_is_like_one_that_does_not_exist(guarded: Guarded) -> None:
    for verb, call in OF_A_MODEL.items():
        for name in GOOD:
            caller = guarded.caller(name)
            absent = call(caller, ABSENT)
            answer = call(caller, OPEN)
            assert answer.outcome == SERVED, (verb, name, answer)
            assert answer.named(OPEN, ABSENT) != absent.named(OPEN, ABSENT), (verb, name)
            is_hidden = call(caller, SECRET).named(SECRET, ABSENT) == absent
            assert is_hidden == (name == "limited"), (verb, name)
    for verb, call in OF_THE_SERVER.items():  # which leave it out
        for name in GOOD:
            answer = call(guarded.caller(name), OPEN)
            assert answer.outcome == SERVED, (verb, name)
            seen = [model.encode() in answer.body for model in (OPEN, SECRET)]
            assert seen == [True, name != "limited"], (verb, name)


def test_only_an_admin_key_administers_and_health_needs_no_key(guarded: Guarded) -> None:
    for verb, call in MANAGEMENT.items():
        outcomes = [call(guarded.caller(name), OPEN).outcome for name in GOOD]
        assert outcomes == [FORBIDDEN, FORBIDDEN, SERVED], verb
    for verb, call in HEALTH.items():
        for name in ("none", "wrong", "limited"):
            assert call(guarded.caller(name), OPEN).status in (0, 200), (verb, name)
    statuses = dict.fromkeys(UNKNOWN, 401) | {"limited": 403, "predictor": 403, "admin": 200}
    for name, key in guarded.keys.items():
        assert guarded.request("GET", "/api/models", key=key)[0] == statuses[name], name


# --- revocation ----------------------------------------------------------------------------------


def test_a_revoked_key_is_refused_by_every_worker_once_that_is_acknowledged(
    guarded: Guarded,
) -> None:
    for verb, good, refused in (("http infer", 200, 401), ("grpc infer", 0, 16)):
        made = guarded.make("predictor", OPEN)
        caller = Caller(guarded, made["key"])

        def statuses(verb: str = verb, caller: Caller = caller) -> set[int]:
            """Of fresh connections, as many as lead to both workers."""
            return {OF_A_MODEL[verb](caller, OPEN).status for _ in range(30)}

        assert statuses() == {good}
        answer = guarded.revoke(made["id"])
        assert statuses() == {refused}
        workers = guarded.admin("GET", "/api/snapshot")[1]["workers"]
        assert len(workers) == 2
        assert all(worker["generation"] >= answer["generation"] for worker in workers)


# --- the command line ----------------------------------------------------------------------------


@pytest.mark.slow
def test_a_command_is_let_in_by_the_state_folder_or_by_a_key(
    guarded: Guarded, tmp_path: Path
) -> None:
    here = guarded.environment | {"SERVEGATE_STATE": str(guarded.up.state)}
    listed = harness.servegate("key", "ls", "--json", env=here)
    assert listed.returncode == 0, listed.stderr
    assert guarded.keys["admin"].split("_")[1] in {key["id"] for key in json.loads(listed.stdout)}
    elsewhere = guarded.environment | {"SERVEGATE_STATE": str(tmp_path)}
    refused = harness.servegate("model", "ls", env=elsewhere)
    assert refused.returncode == 4 and "--key-file" in refused.stderr
    (tmp_path / "key").write_text(guarded.keys["admin"])
    key_file = ("--key-file", str(tmp_path / "key"))
    assert harness.servegate("model", "ls", *key_file, env=elsewhere).returncode == 0
    for transport in ((), ("--grpc",)):
        shown = elsewhere | {"SERVEGATE_KEY": guarded.keys["limited"]}
        done = harness.servegate("infer", OPEN, "--input", "random", *transport, env=shown)
        assert done.returncode == 0, done.stderr
