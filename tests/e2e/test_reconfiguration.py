"""A serving configuration is changed on two real Tritons while calls go on, and taken back."""

import harness
import pushing
import pytest
from reconfiguring import BATCHES, calling, in_triton, path_of, put, shown

pytestmark = [pytest.mark.triton, pytest.mark.slow]
SLOW = {"dynamic_batching": {"preferred_batch_size": [8], "max_queue_delay_microseconds": 300000}}


@pytest.fixture(scope="module")
def up(tmp_path_factory):
    folder = tmp_path_factory.mktemp("revised")
    (folder / "plain").mkdir()
    pushing.source(folder / "plain" / "folder", 3.0, more=BATCHES)
    flags = ("--replicas", "2", "--workers", "1", "--contract-interval", "86400")
    with harness.up(folder / "state", "--model-repo", str(folder / "plain"), *flags) as running:
        running.folder = folder
        yield running


def push(up, name):
    folder = pushing.source(up.folder / name, 2.0, more=BATCHES)
    pushing.brought(up, pushing.proven(folder, 2.0), name)


def test_a_change_reaches_every_replica_without_a_failed_call_and_goes_back_by_restore(up):
    push(up, "m")
    with calling(up, "m") as load:
        delay = {"max_queue_delay_microseconds": 700}
        done = put(up, "m", {"max_batch_size": 16, "dynamic_batching": delay})
        assert (done["change"]["outcome"], in_triton(up, "m")["max_batch_size"]) == ("applied", 16)
        assert {one["state"] for one in done["replicas"].values()} == {"applied"}
        again = put(up, "m", {"max_batch_size": 32})
        assert in_triton(up, "m")["max_batch_size"] == 32
        revision = done["etag"].strip('"')
        back = harness.servegate("history", "restore", revision, "--yes", "--admin-url", up.admin)
        assert back.returncode == 0, back.stderr
        assert in_triton(up, "m")["max_batch_size"] == 16
    assert load.failed() == []
    page = shown(up, "m")
    assert page["fields"] == done["fields"]
    assert "restored" in page["reason"] and page["etag"] != again["etag"]


def test_a_configuration_with_which_the_objective_is_missed_is_taken_back(up):
    push(up, "late")
    up_with_objective = {"objective": "p99<200ms"}
    status, answer = harness.request(f"{up.admin}/api/models/late", "PATCH", up_with_objective)
    assert status == 200, answer
    with calling(up, "late") as load:
        done = put(up, "late", SLOW, query="&watch=20")
    assert done["change"]["outcome"] == "taken back", done["change"]
    assert "p99<200ms was met before the change and is missed after it" in done["change"]["told"]
    assert load.failed() == []
    assert (done["author"], done["fields"]) == ("servegate", {})
    assert in_triton(up, "late")["dynamic_batching"]["max_queue_delay_microseconds"] == 100


def test_a_folder_of_the_plain_repository_is_changed_and_given_back(up):
    with calling(up, "folder") as load:
        done = put(up, "folder", {"max_batch_size": 2})
        assert (done["change"]["outcome"], in_triton(up, "folder")["max_batch_size"]) == (
            "applied",
            2,
        )
        put(up, "folder", {})
        assert in_triton(up, "folder")["max_batch_size"] == 8
    assert load.failed() == []


def test_what_triton_cannot_load_is_refused_by_its_trial_and_nothing_is_written(up):
    push(up, "tried")
    absent = {
        "model_warmup": [
            {
                "name": "w",
                "batch_size": 1,
                "inputs": {"nothing": {"data_type": "TYPE_FP32", "dims": [4], "zero_data": True}},
            }
        ]
    }
    status, answer = harness.request(path_of(up, "tried"), "PUT", {"fields": absent})
    assert status == 422, answer
    assert shown(up, "tried")["fields"] == {}
