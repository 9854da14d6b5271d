"""`servegate model push`: from a folder to every replica, as its users do it."""

import json
import re

import grpc
import harness
import numpy as np
import pushing
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

pytestmark = pytest.mark.triton
FIVEFOLD = """
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        rows = [pb.get_input_tensor_by_name(r, "x").as_numpy() for r in requests]
        return [pb.InferenceResponse([pb.Tensor("y", 5 * x)]) for x in rows]
"""


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("push")
    pushing.python(folder / "models" / "mixed", FIVEFOLD)
    flags = ("--model-repo", str(folder / "models"), "--replicas", "2", "--workers", "2")
    flags += ("--contract-interval", "2", "--quarantine", "off")
    with harness.up(folder / "state", *flags) as running:
        yield running


def asked(client, module, name, version=""):
    """One row through one of Triton's own clients: what it answers, and as which version."""
    tensor = module.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.array([pushing.ROW], np.float32))
    answer = client.infer(name, [tensor], model_version=version)
    told = answer.get_response()
    named = told["model_name"] if isinstance(told, dict) else told.model_name
    number = told["model_version"] if isinstance(told, dict) else told.model_version
    return named, number, float(answer.as_numpy("y")[0, 0])


def clients(up):
    return (
        (triton_http.InferenceServerClient(up.http), triton_http),
        (triton_grpc.InferenceServerClient(up.grpc), triton_grpc),
    )


def test_a_pushed_model_is_served_by_number_and_label_once_the_command_returns(up, tmp_path):
    folder = pushing.source(tmp_path / "m", 2.0)
    golden = pushing.golden(tmp_path / "golden.npz", 2.0)
    flags = ("--label", "candidate", "--golden", str(golden), "--wait")
    result = pushing.pushed(up, folder, "first", *flags)
    assert (result["type"], result["version"]) == ("result", 1)
    assert pushing.factor_of(up, "first", "1") == 2.0
    assert pushing.factor_of(up, "first", "candidate") == 2.0
    shown = pushing.state(up, "first", 1)
    assert (shown["state"], len(shown["replicas"])) == ("serving", 2)
    assert shown["provenance"]["author"]


@pytest.mark.slow
def test_the_same_content_again_is_the_same_version_unless_another_is_asked_for(up, tmp_path):
    folder = pushing.source(tmp_path / "m", 2.0)
    first = pushing.pushed(up, folder, "same", "--wait")
    again = pushing.pushed(up, folder, "same", "--wait")
    assert (first["version"], again["version"], again["created"]) == (1, 1, False)
    assert again["sent"] == 0
    assert pushing.pushed(up, folder, "same", "--wait", "--again")["version"] == 2


@pytest.mark.slow
def test_a_version_is_not_loaded_anew_because_others_have_the_same_files(up, tmp_path):
    """Triton looks at each file's time of change, which a further hard link would set."""
    folder = pushing.source(tmp_path / "m", 6.0)
    pushing.brought(up, folder, "shared")
    before = len(up.program.lines)
    pushing.brought(up, pushing.proven(folder, 6.0), "shared")
    assert pushing.factor_of(up, "shared", "2") == 6.0
    said = [line for line in up.program.lines[before:] if re.search("local-.*runs on", line)]
    assert all("shared version 2" in line for line in said), said


def test_a_push_moves_no_calls_until_somebody_says_so(up, tmp_path):
    pushing.published(up, tmp_path / "a", "calm", 2.0)
    pushing.pushed(up, pushing.source(tmp_path / "b", 3.0), "calm", "--wait")
    assert pushing.factor_of(up, "calm") == 2.0
    assert pushing.factor_of(up, "calm", "2") == 3.0
    up.split("calm", v2=100)
    assert pushing.factor_of(up, "calm") == 3.0
    pushing.pushed(up, pushing.source(tmp_path / "c", 4.0), "calm", "--wait", "--live")
    assert pushing.factor_of(up, "calm") == 4.0


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [0, 1], ids=["http", "grpc"])
def test_versions_with_different_configurations_are_served_side_by_side(up, tmp_path, protocol):
    name = f"aside{protocol}"
    batching = "dynamic_batching { max_queue_delay_microseconds: 100 }"
    pushing.published(up, tmp_path / "a", name, 2.0)
    pushing.brought(up, pushing.source(tmp_path / "b", 3.0, batch=4, more=batching), name)
    client, module = clients(up)[protocol]
    assert asked(client, module, name, "1") == (name, "1", 2.0)
    assert asked(client, module, name, "2") == (name, "2", 3.0)
    configured = [client.get_model_config(name, version) for version in "12"]
    batches = [
        one["max_batch_size"] if protocol == 0 else one.config.max_batch_size for one in configured
    ]
    assert batches == [8, 4]
    up.split(name, v1=50, v2=50)
    seen = {asked(client, module, name) for _ in range(60)}
    assert seen == {(name, "1", 2.0), (name, "2", 3.0)}
    held = up.get("/api/replicas")[0]["held"]
    assert {len(versions) for physical, versions in held.items() if physical.startswith(name)} == {
        1
    }


@pytest.mark.slow
def test_a_published_version_stands_beside_a_model_of_another_backend(up, tmp_path):
    pushing.published(up, tmp_path / "m", "mixed", 2.0)
    assert pushing.state(up, "mixed", 2)["physical"].startswith("mixed--")
    for client, module in clients(up):
        assert asked(client, module, "mixed", "1")[2] == 5.0
        assert asked(client, module, "mixed", "2") == ("mixed", "2", 2.0)
        assert asked(client, module, "mixed") == ("mixed", "1", 5.0)
    up.split("mixed", v1=50, v2=50)
    client, module = clients(up)[1]
    assert {asked(client, module, "mixed")[2] for _ in range(60)} == {5.0, 2.0}


def test_code_is_refused_where_it_is_not_allowed(up, tmp_path):
    done = pushing.push(up, pushing.python(tmp_path / "m", FIVEFOLD), "code", "--wait")
    assert done.returncode == 7
    assert "--allow-code-models" in done.stderr


@pytest.mark.slow
def test_an_ensemble_is_pinned_and_its_parts_cannot_go(up, tmp_path):
    pushing.published(up, tmp_path / "part", "part", 2.0)
    folder = tmp_path / "whole"
    (folder / "1").mkdir(parents=True)
    (folder / "1" / "keep.txt").write_text("an ensemble's version folder holds nothing")
    (folder / "config.pbtxt").write_text(
        """
platform: "ensemble"
max_batch_size: 8
input [{ name: "x" data_type: TYPE_FP32 dims: [ 4 ] }]
output [{ name: "y" data_type: TYPE_FP32 dims: [ 4 ] }]
ensemble_scheduling { step [
  { model_name: "part" model_version: -1
    input_map { key: "x" value: "x" } output_map { key: "y" value: "middle" } },
  { model_name: "part" model_version: -1
    input_map { key: "x" value: "middle" } output_map { key: "y" value: "y" } }
] }
"""
    )
    pushing.brought(up, folder, "whole")
    assert pushing.factor_of(up, "whole") == 4.0
    pushing.published(up, tmp_path / "newer", "part", 3.0, live=True)
    assert (pushing.factor_of(up, "part"), pushing.factor_of(up, "whole")) == (3.0, 4.0)
    status, answer = harness.request(f"{up.admin}/api/models/part/versions/1", "DELETE")
    assert (status, answer["code"]) == (409, "in_use"), answer


def test_a_version_is_pulled_as_it_was_pushed(up, tmp_path):
    folder = pushing.source(tmp_path / "m", 2.0)
    pushing.brought(up, folder, "pulled")
    out = ("--out", str(tmp_path / "got"))
    done = harness.servegate("model", "pull", "pulled@1", *out, "--admin-url", up.admin)
    assert done.returncode == 0, done.stderr
    got = next((tmp_path / "got").rglob("model.onnx"))
    assert got.read_bytes() == (folder / "1" / "model.onnx").read_bytes()


@pytest.mark.slow
def test_a_retired_version_is_unloaded_and_comes_back(up, tmp_path):
    pushing.published(up, tmp_path / "a", "retired", 2.0)
    pushing.published(up, tmp_path / "b", "retired", 3.0)
    status, _ = harness.request(f"{up.admin}/api/models/retired/versions/1", "DELETE")
    assert status == 409  # calls go to it
    up.split("retired", v2=100)
    assert harness.request(f"{up.admin}/api/models/retired/versions/1", "DELETE")[0] == 200
    harness.until(lambda: pushing.infer(up, "retired", "1")[0] == 404)
    assert harness.request(f"{up.admin}/api/models/retired/versions/1/restore", "POST")[0] == 200
    pushing.wait_state(up, "retired", 1, "ready", "serving")
    assert pushing.factor_of(up, "retired", "1") == 2.0
    assert pushing.factor_of(up, "retired") == 3.0


@pytest.mark.slow
def test_a_replica_that_answers_wrongly_gets_no_calls_although_it_is_ready(up, tmp_path):
    """The file behind one replica's version is exchanged; a load of ours makes it wrong there."""
    folder = pushing.source(tmp_path / "m", 2.0)
    pushing.brought(up, pushing.proven(folder, 2.0), "proven")
    file = up.state / "repository" / "proven" / "1" / "model.onnx"
    right = file.read_bytes()
    file.unlink()
    file.write_bytes(pushing.times(7.0))
    address = up.get("/api/replicas")[0]["address"].split(":")
    with grpc.insecure_channel(f"{address[0]}:{address[2]}"):
        client = triton_grpc.InferenceServerClient(f"{address[0]}:{address[2]}")
        client.unload_model("proven")
        client.load_model("proven")
        assert client.is_model_ready("proven", "1")
    harness.until(
        lambda: len(pushing.state(up, "proven", 1)["replicas"]) == 1, what="it gets no calls"
    )
    assert {pushing.factor_of(up, "proven") for _ in range(20)} == {2.0}
    file.unlink()
    file.write_bytes(right)
    harness.until(lambda: len(pushing.state(up, "proven", 1)["replicas"]) == 2, what="it is back")


def test_history_undoes_a_route_with_one_command(up, tmp_path):
    pushing.published(up, tmp_path / "a", "undone", 2.0)
    pushing.published(up, tmp_path / "b", "undone", 3.0, live=True)
    shown = harness.servegate(
        *("history", "show", "--kind", "route", "--key", "undone", "--json"),
        *("--admin-url", up.admin),
    )
    revisions = json.loads(shown.stdout)
    first = min(entry["revision"] for entry in revisions)
    assert pushing.factor_of(up, "undone") == 3.0
    done = harness.servegate("history", "restore", str(first), "--yes", "--admin-url", up.admin)
    assert done.returncode == 0, done.stderr
    assert pushing.factor_of(up, "undone") == 2.0
