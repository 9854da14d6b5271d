"""The ways in which Tritons get versions, and where versions are held: real parts, end to end."""

import struct
import threading

import fleets
import grpc
import harness
import obstore
import obstore.store
import pushing
import pytest
import tfserving_bytes as tf

pytestmark = [pytest.mark.triton, pytest.mark.slow]
FLAGS = ("--quarantine", "off", "--contract-interval", "2")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    """Replicas `a` and `late` in one pool, `b` in another; `late` is not there yet."""
    folder = tmp_path_factory.mktemp("fleet")
    machines = [
        fleets.Machine(folder, "a"),
        fleets.Machine(folder, "late"),
        fleets.Machine(folder, "b", "other"),
    ]
    one = fleets.Fleet(folder / "state", *machines, flags=FLAGS, env={})
    try:
        for machine in (machines[0], machines[2]):
            machine.start_triton()
            machine.start_agent(one.admin)
        yield one.wait_ready()
    finally:
        one.stop()


def answers(up, name, version=""):
    """The factor and the version that Triton's clients get, over either protocol."""
    return [pushing.asked(*client, name, version) for client in pushing.clients(up)]


class Watching:
    """Looks at the snapshot again and again, and notes who may be called for what."""

    def __init__(self, fleet):
        self._fleet, self._ends = fleet, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.seen = []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._ends.set()
        self._thread.join()

    def _watch(self):
        while not self._ends.wait(0.03):
            self.seen.append(self._fleet.snapshot())


def versions_called(snapshot, replica, models):
    """The versions of these models for which a replica may be called."""
    return {
        (model, version)
        for model in models
        for version, replicas in snapshot.get(model, {}).items()
        if replica in replicas
    }


def test_agents_bring_what_was_pushed_and_it_is_served(fleet, tmp_path):
    assert pushing.published(fleet, tmp_path / "m", "brought", 2.0) == 1
    assert answers(fleet, "brought") == [("brought", "1", 2.0)] * 2
    assert fleet.called("brought", 1) == {"a"}
    assert (fleet.machines[0].repository / "brought" / "1" / "model.onnx").exists()


def test_without_its_agent_a_replica_gets_no_load_call_and_the_model_says_why(fleet, tmp_path):
    a = fleet.machines[0]
    pushing.published(fleet, tmp_path / "before", "agentless", 2.0)
    a.kill_agent()
    pushing.publish(fleet, pushing.source(tmp_path / "after", 3.0), "agentless")

    def reason():
        return pushing.state(fleet, "agentless", 2)["reason"]

    harness.until(lambda: "'servegate sync' has not polled for replica a" in reason())
    assert "has not polled" in " ".join(fleet.get("/api/models/agentless")["problems"])
    assert pushing.factor_of(fleet, "agentless") == 2.0
    assert a.log.count("successfully loaded 'agentless'") == 1
    a.start_agent(fleet.admin)
    pushing.wait_state(fleet, "agentless", 2, "ready", "serving")
    assert pushing.factor_of(fleet, "agentless", "2") == 3.0


def test_a_model_moves_to_another_pool_without_a_failed_call(fleet, tmp_path):
    pushing.published(fleet, tmp_path / "m", "moving", 2.0)
    failed, ends = [], threading.Event()

    def calling():
        while not ends.is_set():
            status, answer = pushing.infer(fleet, "moving")
            if status != 200:
                failed.append(answer)

    caller = threading.Thread(target=calling)
    caller.start()
    try:
        flags = ("--pool", "other", "--admin-url", fleet.admin)
        done = harness.servegate("model", "set", "moving", *flags)
        assert done.returncode == 0, done.stderr
        harness.until(lambda: fleet.called("moving", 1) == {"b"}, what="calls move")
        harness.until(lambda: "moving" not in fleet.held("a"), what="the old pool unloads it")
    finally:
        ends.set()
        caller.join()
    assert failed == []
    assert pushing.factor_of(fleet, "moving") == 2.0


def test_a_replica_that_joins_late_gets_everything_before_it_gets_calls(fleet, tmp_path):
    late = fleet.machines[1]
    models = ("early", "second")
    for name in models:
        pushing.publish(fleet, pushing.source(tmp_path / name, 2.0), name)
    everything = {(name, 1) for name in models}
    harness.until(lambda: versions_called(fleet.snapshot(), "a", models) == everything)
    with Watching(fleet) as watching:
        late.start_triton()
        late.start_agent(fleet.admin)
        harness.until(lambda: versions_called(fleet.snapshot(), "late", models) == everything)
        late.kill_triton()
        harness.until(lambda: not versions_called(fleet.snapshot(), "late", models))
        late.start_triton()
        harness.until(lambda: versions_called(fleet.snapshot(), "late", models) == everything)
    seen = [versions_called(one, "late", models) for one in watching.seen]
    assert {len(one) for one in seen} == {0, 2}


# --- a bucket that Triton reads itself ------------------------------------------------------------


@pytest.fixture(scope="module")
def bucket(tmp_path_factory, s3):
    """How to start a gateway over a bucket, again and again; and the first run of it."""
    folder = tmp_path_factory.mktemp("bucket")
    url = s3.bucket()
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--quarantine", "off")
    flags += ("--delivery", "bucket", "--storage", url, "--keep-loaded", "9")

    def start():
        return harness.up(folder / "state", *flags, env=s3.environment)

    return start, url, s3


def objects(url, s3):
    """Everything in the bucket, and when it was written."""
    store = obstore.store.from_url(url, config=s3.config, client_options={"allow_http": True})
    return {
        one["path"]: (one["last_modified"], one["e_tag"])
        for batch in obstore.list(store)
        for one in batch
    }


def test_a_bucket_brings_versions_to_triton_and_a_restart_uploads_nothing_again(bucket, tmp_path):
    start, url, s3 = bucket
    with start() as up:
        pushing.published(up, tmp_path / "a", "packed", 2.0)
        assert answers(up, "packed") == [("packed", "1", 2.0)] * 2
        before = pushing.started(up, "packed", 1)
        pushing.published(up, tmp_path / "b", "packed", 3.0)
        assert pushing.factor_of(up, "packed", "2") == 3.0
        assert pushing.started(up, "packed", 1) == before
        stored = objects(url, s3)
        assert any(path.endswith("repository/packed/2/model.onnx") for path in stored)
    with start() as up:
        for version in ("1", "2"):
            harness.until(lambda version=version: pushing.infer(up, "packed", version)[0] == 200)
        for version, factor in (("1", 2.0), ("2", 3.0)):
            assert answers(up, "packed", version) == [("packed", version, factor)] * 2
        views_show_one_model(up, tmp_path)
        tensorflow_serving_clients_see_published_versions(up)
        assert stored.items() <= objects(url, s3).items()


def views_show_one_model(up, folder):
    """KServe clients see a model with all its versions, whatever Triton calls them."""
    up.put("/api/models/packed/labels/other", {"version": 2})
    batching = "dynamic_batching { }"
    odd = pushing.source(folder / "d", 5.0, batch=4, more=batching)
    assert pushing.publish(up, odd, "packed") == 3
    pushing.wait_state(up, "packed", 3, "ready")
    assert pushing.state(up, "packed", 3)["physical"].startswith("packed--")
    (http, _), (by_grpc, _) = pushing.clients(up)
    for version in "123":
        answers(up, "packed", version)
    index = {
        (one["name"], one["version"], one["state"]) for one in http.get_model_repository_index()
    }
    told = by_grpc.get_model_repository_index(as_json=True)["models"]
    assert index == {(one["name"], one["version"], one["state"]) for one in told}
    ready = {(name, number) for name, number, state in index if state == "READY"}
    assert ready == {("packed", number) for number in "123"}
    assert {name for name, _, _ in index} == {"packed"}
    for version, batch in (("", 8), ("1", 8), ("3", 4)):
        config = http.get_model_config("packed", version)
        same = by_grpc.get_model_config("packed", version).config
        assert (config["name"], config["max_batch_size"]) == ("packed", batch)
        assert (same.name, same.max_batch_size) == ("packed", batch)
    metadata = http.get_model_metadata("packed")
    assert (metadata["name"], metadata["versions"]) == ("packed", ["1", "2", "3"])
    same = by_grpc.get_model_metadata("packed")
    assert (same.name, list(same.versions)) == ("packed", metadata["versions"])
    stats = {
        (one["name"], one["version"]): one["inference_count"]
        for one in http.get_inference_statistics()["model_stats"]
    }
    same = by_grpc.get_inference_statistics().model_stats
    assert stats == {(one.name, one.version): one.inference_count for one in same}
    assert stats.keys() == ready and all(stats.values())
    one = http.get_inference_statistics("packed", "3")["model_stats"]
    assert [(entry["name"], entry["version"]) for entry in one] == [("packed", "3")]


def tensorflow_serving_clients_see_published_versions(up):
    """By number and by label, with the natural name, for either configuration."""
    base = f"http://{up.http}/v1/models/packed"
    body = {"instances": [pushing.ROW]}
    for part, factor in (("", 2.0), ("/versions/3", 5.0), ("/labels/other", 3.0)):
        status, answer = harness.request(f"{base}{part}:predict", "POST", body)
        assert (status, answer) == (200, {"predictions": [[factor * x for x in pushing.ROW]]})
    told = harness.request(base)[1]["model_version_status"]
    assert [one["version"] for one in told if one["state"] == "AVAILABLE"] == ["3", "2", "1"]
    spec = harness.request(f"{base}/versions/3/metadata")[1]["model_spec"]
    assert spec == {"name": "packed", "signature_name": "", "version": "3"}
    spec = tf.spec("packed", label="other")
    tensor = tf.tensor(tf.FLOAT, [1, 4], tf.sized(4, struct.pack("<4f", *pushing.ROW)))
    with grpc.insecure_channel(up.grpc) as channel:
        call = channel.unary_unary("/tensorflow.serving.PredictionService/Predict")
        answer = call(tf.predict_request(spec, x=tensor))
    found = struct.unpack("<4f", tf.read(tf.mapped(answer, 1)["y"])[5][0])
    assert found == tuple(3.0 * x for x in pushing.ROW)
