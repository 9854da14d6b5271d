"""`servegate model push`: from a folder to every replica, as its users do it."""

import json

import harness
import pushing
import pytest
import tritonclient.grpc as triton_grpc

pytestmark = pytest.mark.triton


def test_a_pushed_model_is_served_by_number_and_label_once_the_command_returns(uploading, tmp_path):
    up, folder = uploading, pushing.source(tmp_path / "m", 2.0)
    golden = pushing.golden(tmp_path / "golden.npz", 2.0)
    flags = ("--label", "candidate", "--golden", str(golden), "--wait")
    done = pushing.push(up, folder, "first", *flags, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert {"digest", "upload", "sent", "committed", "state"} <= {one["type"] for one in events}
    assert (events[-1]["type"], events[-1]["version"]) == ("result", 1)
    assert pushing.factor_of(up, "first", "1") == 2.0
    assert pushing.factor_of(up, "first", "candidate") == 2.0
    shown = pushing.state(up, "first", 1)
    assert shown["state"] == "serving" and shown["provenance"]["author"]
    harness.until(lambda: len(pushing.state(up, "first", 1)["replicas"]) == 2)
    again = pushing.push(up, folder, "first", *flags)  # the same content is the same version
    assert (again.stdout, "version 1 is" in again.stderr) == ("first@1\n", True), again.stderr
    out = ("--out", str(tmp_path / "got"))
    pulled = harness.servegate("model", "pull", "first@1", *out, "--admin-url", up.admin)
    assert pulled.returncode == 0, pulled.stderr
    got = next((tmp_path / "got").rglob("model.onnx"))
    assert got.read_bytes() == (folder / "1" / "model.onnx").read_bytes()


@pytest.mark.slow
def test_a_push_moves_no_calls_until_a_command_does_and_history_undoes_that(uploading, tmp_path):
    up = uploading
    pushing.published(up, tmp_path / "a", "calm", 2.0)
    pushing.pushed(up, pushing.source(tmp_path / "b", 3.0), "calm", "--wait")
    assert pushing.factor_of(up, "calm") == 2.0
    assert pushing.factor_of(up, "calm", "2") == 3.0
    up.split("calm", v1=100)
    pushing.published(up, tmp_path / "c", "calm", 4.0, live=True)
    assert pushing.factor_of(up, "calm") == 4.0
    where = ("--admin-url", up.admin)
    flags = ("--kind", "route", "--key", "calm", "--json")
    shown = harness.servegate("history", "show", *flags, *where)
    first = min(entry["revision"] for entry in json.loads(shown.stdout))
    done = harness.servegate("history", "restore", str(first), "--yes", *where)
    assert done.returncode == 0, done.stderr
    assert pushing.factor_of(up, "calm") == 2.0
    code = pushing.push(up, pushing.python(tmp_path / "d", pushing.FIVEFOLD), "code", "--wait")
    assert code.returncode == 7
    assert "--allow-code-models" in code.stderr


@pytest.mark.slow
def test_another_version_of_the_same_content_is_made_when_asked_for_and_loads_nothing_anew(
    uploading, tmp_path
):
    """Triton looks at each file's time of change, which a further hard link would set."""
    up, folder = uploading, pushing.source(tmp_path / "m", 6.0)
    pushing.brought(up, folder, "shared")
    assert pushing.pushed(up, folder, "shared", "--wait")["created"] is False
    pushing.factor_of(up, "shared")
    before = pushing.started(up, "shared", 1)
    pushing.brought(up, pushing.proven(folder, 6.0), "shared")
    assert pushing.factor_of(up, "shared", "2") == 6.0
    assert pushing.started(up, "shared", 1) == before
    assert pushing.pushed(up, folder, "shared", "--wait", "--again")["version"] == 3


@pytest.mark.slow
def test_versions_with_different_configurations_are_served_side_by_side(uploading, tmp_path):
    up = uploading
    batching = "dynamic_batching { max_queue_delay_microseconds: 100 }"
    pushing.published(up, tmp_path / "a", "aside", 2.0)
    pushing.brought(up, pushing.source(tmp_path / "b", 3.0, batch=4, more=batching), "aside")
    up.split("aside", v1=50, v2=50)
    for number, (client, module) in enumerate(pushing.clients(up)):
        for version, factor, size in (("1", 2.0, 8), ("2", 3.0, 4)):
            asked = pushing.asked(client, module, "aside", version)
            assert asked == ("aside", version, factor)
            config = client.get_model_config("aside", version)
            assert (config.config.max_batch_size if number else config["max_batch_size"]) == size
        seen = {pushing.asked(client, module, "aside") for _ in range(60)}
        assert seen == {("aside", "1", 2.0), ("aside", "2", 3.0)}
    held = up.get("/api/replicas")[0]["held"]
    assert [len(found) for name, found in held.items() if name.startswith("aside")] == [1, 1]


@pytest.mark.slow
def test_a_published_version_stands_next_to_a_model_of_another_backend(uploading, tmp_path):
    up = uploading
    pushing.published(up, tmp_path / "m", "mixed", 2.0)
    assert pushing.state(up, "mixed", 2)["physical"].startswith("mixed--")
    for client, module in pushing.clients(up):
        assert pushing.asked(client, module, "mixed", "1")[2] == 5.0
        assert pushing.asked(client, module, "mixed", "2") == ("mixed", "2", 2.0)
        assert pushing.asked(client, module, "mixed") == ("mixed", "1", 5.0)
    up.split("mixed", v1=50, v2=50)
    client, module = pushing.clients(up)[1]
    assert {pushing.asked(client, module, "mixed")[2] for _ in range(60)} == {5.0, 2.0}


@pytest.mark.slow
def test_an_ensemble_is_pinned_and_its_parts_cannot_go(uploading, tmp_path):
    up = uploading
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


@pytest.mark.slow
def test_a_retired_version_is_unloaded_and_comes_back(uploading, tmp_path):
    up, path = uploading, f"{uploading.admin}/api/models/retired/versions/1"
    pushing.published(up, tmp_path / "a", "retired", 2.0)
    pushing.published(up, tmp_path / "b", "retired", 3.0)
    assert harness.request(path, "DELETE")[0] == 409  # calls go to it
    up.split("retired", v2=100)
    assert harness.request(path, "DELETE")[0] == 200
    harness.until(lambda: pushing.infer(up, "retired", "1")[0] == 404)
    assert harness.request(f"{path}/restore", "POST")[0] == 200
    pushing.wait_state(up, "retired", 1, "ready", "serving")
    assert pushing.factor_of(up, "retired", "1") == 2.0
    assert pushing.factor_of(up, "retired") == 3.0


@pytest.mark.slow
def test_a_replica_that_answers_wrongly_gets_no_calls_although_it_is_ready(uploading, tmp_path):
    """The file behind one replica's version is exchanged; a load of ours makes it wrong there."""
    up, folder = uploading, pushing.source(tmp_path / "m", 2.0)
    pushing.brought(up, pushing.proven(folder, 2.0), "proven")
    file = up.state / "repository" / "proven" / "1" / "model.onnx"
    right = file.read_bytes()
    file.unlink()
    file.write_bytes(pushing.times(7.0))
    host, _, rpc, _ = up.get("/api/replicas")[0]["address"].split(":")
    client = triton_grpc.InferenceServerClient(f"{host}:{rpc}")
    client.unload_model("proven")
    client.load_model("proven")
    assert client.is_model_ready("proven", "1")
    harness.until(
        lambda: len(pushing.state(up, "proven", 1)["replicas"]) == 1, what="it gets no calls"
    )
    harness.until(  # every worker has the snapshot that says so
        lambda: {pushing.factor_of(up, "proven") for _ in range(20)} == {2.0}
    )
    assert {pushing.factor_of(up, "proven") for _ in range(20)} == {2.0}
    file.unlink()
    file.write_bytes(right)
    harness.until(lambda: len(pushing.state(up, "proven", 1)["replicas"]) == 2, what="it is back")
