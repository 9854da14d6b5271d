"""`servegate model push`: from a folder to every replica, as its users do it."""

import json
import re

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


def corrupt(folder):
    pushing.source(folder, 1.0)
    (folder / "1" / "model.onnx").write_bytes(pushing.times(1.0)[:-20])
    return folder


@pytest.mark.slow
def test_a_version_that_is_no_good_fails_in_quarantine_and_the_old_one_serves_on(tmp_path):
    golden = str(pushing.golden(tmp_path / "golden.npz", 3.0))
    with harness.up(tmp_path / "state", "--model-repo", "", "--replicas", "2") as up:
        pushing.published(up, tmp_path / "fine", "held", 3.0)
        assert pushing.state(up, "held", 1)["memory"] is not None
        for folder, words, flags in (
            (corrupt(tmp_path / "corrupt"), "model.onnx", ()),
            (pushing.source(tmp_path / "wrong", 4.0), "'y'", ("--golden", golden)),
        ):
            done = pushing.push(up, folder, "held", "--wait", "--json", *flags)
            assert done.returncode == 7, (folder, done.stdout, done.stderr)
            assert json.loads(done.stdout.splitlines()[-1])["type"] == "result"
            number = up.get("/api/models/held")["versions"][-1]["version"]
            shown = pushing.state(up, "held", number)
            assert (shown["state"], words in shown["reason"]) == ("failed", True), shown["reason"]
            assert pushing.factor_of(up, "held") == 3.0
            assert all(replica["held"]["held"] == [1] for replica in up.get("/api/replicas"))
            assert not (up.state / "repository" / "held" / str(number)).exists()
        loads = [line for line in up.program.lines if re.search(r"local-.*load(ing)?: held:", line)]
        assert all("held:1" in line for line in loads), loads


# --- flavours: the same version in different forms ------------------------------------------------

FILE = "model.fast.onnx"


def source(folder, factor, preferred):
    pushing.source(folder, factor)
    (folder / "1" / FILE).write_bytes(preferred)
    flavour = {"name": "fast", "file": FILE, "needs": {"gpu": True}}
    page = {"format": 1, "base": True, "flavours": [flavour]}
    (folder / "flavours.json").write_text(json.dumps(page))
    return pushing.proven(folder, factor)


def files(up, name):
    """The file that each replica runs, as its Triton says."""
    found = {}
    for replica in up.get("/api/replicas"):
        port = replica["address"].split(":")[1]
        status, config = harness.request(f"http://127.0.0.1:{port}/v2/models/{name}/config")
        if status == 200:
            found[replica["name"]] = config["default_model_filename"]
    return found


def settled(up, name, **flavours):
    """The model once its replicas hold its version in these flavours."""
    wanted = {key.replace("_", "-"): value for key, value in flavours.items()}

    def shown():
        return up.get(f"/api/models/{name}")["versions"][0]

    harness.until(lambda: shown()["flavours"] == wanted, what=f"{name} in {wanted}")
    return up.get(f"/api/models/{name}")


@pytest.mark.slow
def test_each_replica_loads_the_flavour_that_its_machine_can_run(uploading, tmp_path):
    folder = source(tmp_path / "m", 2.0, pushing.times(2.0))
    pushing.publish(uploading, folder, "several")
    model = settled(uploading, "several", local_0="base", local_1="fast")
    assert model["problems"] == []
    assert files(uploading, "several") == {"local-0": "model.onnx", "local-1": FILE}
    assert {pushing.factor_of(uploading, "several") for _ in range(8)} == {2.0}

    def shown():
        return harness.servegate("model", "show", "several", "--admin-url", uploading.admin).stdout

    # a replica that loads for another test takes no calls meanwhile
    harness.until(lambda: "local-0(base) local-1(fast)" in shown(), what="both flavours")


@pytest.mark.slow
def test_where_the_preferred_flavour_fails_the_base_answers_and_the_model_says_why(
    uploading, tmp_path
):
    pushing.publish(uploading, source(tmp_path / "m", 2.0, pushing.times(3.0)), "lying")
    model = settled(uploading, "lying", local_0="base", local_1="base")
    (problem,) = model["problems"]
    assert "replica local-1 cannot run flavour 'fast'" in problem
    assert "golden case 0: output 'y'" in problem
    assert {pushing.factor_of(uploading, "lying") for _ in range(8)} == {2.0}
    assert set(files(uploading, "lying").values()) == {"model.onnx"}


# --- memory: who finds no room, what goes, and how it comes back ----------------------------------


@pytest.fixture
def tight(tmp_path):
    """One replica with room for two versions of 400 kB, which keeps nothing that is not needed."""
    flags = ("--model-repo", "", "--replicas", "1", "--workers", "1", "--quarantine", "off")
    flags += ("--pool-memory", "default=1000000", "--keep-loaded", "0")
    env = {"SERVEGATE_UNLOAD_AFTER": "1", "SERVEGATE_SCAN_INTERVAL": "0.3"}
    with harness.up(tmp_path / "state", *flags, env=env) as up:
        yield up


def big(folder, factor):
    pushing.source(folder, factor)
    (folder / "1" / "filler.bin").write_bytes(bytes(400_000))
    return folder


def command(up, *words):
    """One `servegate` command: what it said, after it has ended well or badly."""
    done = harness.servegate(*words, "--admin-url", up.admin)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.slow
def test_what_finds_no_room_is_told_displaces_nobody_and_comes_when_there_is_room(tight, tmp_path):
    for number, name in enumerate(("one", "two")):
        pushing.publish(tight, big(tmp_path / name, 2.0 + number), name)
        pushing.wait_state(tight, name, 1, "serving")
    pushing.publish(tight, big(tmp_path / "three", 4.0), "three")
    shown = pushing.wait_state(tight, "three", 1, "failed")
    assert "pool 'default' has too little memory for it" in shown["reason"]
    assert "too little memory" in command(tight, "model", "show", "three")[1]
    assert [pushing.factor_of(tight, name) for name in ("one", "two")] == [2.0, 3.0]
    assert pushing.infer(tight, "three")[0] in (404, 503)
    assert command(tight, "model", "rm", "one@1")[0] == 0
    pushing.wait_state(tight, "three", 1, "serving", "ready")
    assert pushing.factor_of(tight, "three") == 4.0
    assert "one" not in tight.get("/api/replicas")[0]["held"]
    assert command(tight, "model", "unload", "two")[0] == 0
    assert pushing.infer(tight, "two")[0] in (404, 503)
    assert tight.get("/api/models/two")["state"] == "unloaded"
    assert command(tight, "model", "load", "two")[0] == 0
    assert pushing.factor_of(tight, "two") == 3.0
