"""The ways in which Tritons get versions, and where versions are held: real parts, end to end."""

import json

import fleets
import harness
import obstore
import obstore.store
import pushing
import pytest
from background import steady

pytestmark = [pytest.mark.triton, pytest.mark.slow]
FLAGS = ("--quarantine", "off", "--contract-interval", "2")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    machines = fleets.Machine(folder, "a"), fleets.Machine(folder, "b", "other")
    one = fleets.Fleet(folder / "state", *machines, flags=FLAGS, env={})
    try:
        for machine in machines:
            machine.start_triton()
            machine.start_agent(one.admin)
        yield one.wait_ready()
    finally:
        one.stop()


def answers(up, name, version=""):
    return [pushing.asked(*client, name, version) for client in pushing.clients(up)]


def test_agents_bring_what_was_pushed_and_it_is_served(fleet, tmp_path):
    assert pushing.published(fleet, tmp_path / "m", "brought", 2.0) == 1
    assert answers(fleet, "brought") == [("brought", "1", 2.0)] * 2
    assert fleet.called("brought", 1) == {"a"}
    assert (fleet.machines[0].repository / "brought" / "1" / "model.onnx").exists()


def test_a_model_moves_to_another_pool_without_a_failed_call(fleet, tmp_path):
    pushing.published(fleet, tmp_path / "m", "moving", 2.0)
    inputs = [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": pushing.ROW}]
    with steady(fleet.http, "moving", json.dumps({"inputs": inputs})) as load:
        flags = ("--pool", "other", "--admin-url", fleet.admin)
        done = harness.servegate("model", "set", "moving", *flags)
        assert done.returncode == 0, done.stderr
        harness.until(lambda: fleet.called("moving", 1) == {"b"}, what="calls move")
        harness.until(lambda: "moving" not in fleet.held("a"), what="the old pool unloads it")
    assert load.failures == []
    assert pushing.factor_of(fleet, "moving") == 2.0


# --- a bucket that Triton reads itself ------------------------------------------------------------


def objects(url, s3):
    store = obstore.store.from_url(url, config=s3.config, client_options={"allow_http": True})
    return {
        one["path"]: (one["last_modified"], one["e_tag"])
        for batch in obstore.list(store)
        for one in batch
    }


def test_a_bucket_brings_versions_to_triton_and_a_restart_uploads_nothing_again(s3, tmp_path):
    url = s3.bucket()
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--quarantine", "off")
    flags += ("--delivery", "bucket", "--storage", url, "--keep-loaded", "9")

    def start():
        return harness.up(tmp_path / "state", *flags, env=s3.environment)

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
        assert stored.items() <= objects(url, s3).items()
