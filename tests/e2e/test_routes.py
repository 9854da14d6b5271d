"""Shares of traffic, exactly: seeded draws on each protocol, and changes under load."""

import json
import queue
import random
import threading

import harness
import numpy as np
import pytest
import repositories
import tritonclient.grpc
import tritonclient.http
from background import Load

from serve.core.routes import Split

pytestmark = pytest.mark.triton

SEVEN = (harness.ROOT / "examples/digits/seven.json").read_bytes()


def seven(module):
    """A picture, as a client takes it."""
    values = json.loads(SEVEN)["inputs"][0]
    tensor = module.InferInput("x", values["shape"], "FP32")
    tensor.set_data_from_numpy(np.array(values["data"], np.float32).reshape(values["shape"]))
    return tensor


def version_of(answer):
    reply = answer.get_response()
    return int(reply["model_version"] if isinstance(reply, dict) else reply.model_version)


@pytest.mark.slow
def test_with_a_seed_exactly_the_expected_calls_land_on_each_version(tmp_path):
    with harness.up(tmp_path, "--replicas", "1", "--workers", "1", "--seed", "7") as seeded:
        words = ("route", "set", "digits", "1=90", "2=10", "--admin-url", seeded.admin)
        done = harness.servegate(*words)
        assert done.returncode == 0, done.stderr
        assert "active on every worker" in done.stderr
        draws = random.Random(7)  # worker 0 of a gateway started with --seed 7
        split = Split.of({1: 90, 2: 10})
        for module, url in ((tritonclient.http, seeded.http), (tritonclient.grpc, seeded.grpc)):
            with module.InferenceServerClient(url) as client:
                answers = [client.infer("digits", [seven(module)]) for _ in range(100)]
            landed = [version_of(answer) for answer in answers]
            assert landed == [split.choose(draws.random()) for _ in range(100)]
            assert set(landed) == {1, 2}


def test_20_route_changes_under_load_fail_no_call_and_reach_every_worker(gateway, tmp_path):
    repositories.serve(gateway, repositories.digits(tmp_path / "models", "routed"))
    generations = []
    watched: dict[str, list[int]] = {}
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            for worker in gateway.get("/api/snapshot")["workers"]:
                watched.setdefault(worker["name"], []).append(worker["generation"])

    watcher = threading.Thread(target=watch)
    path = "/v2/models/routed/infer"
    with Load(gateway.http, lambda number, count: (path, SEVEN, "")) as load:
        load.wait_calls(50)
        watcher.start()
        for change in range(20):
            weight = 1 + 5 * change
            answer = gateway.split("routed", v1=100 - weight, v2=weight)
            assert answer["in_force"], f"change {change} did not reach every worker"
            generations.append(answer["generation"])
        load.wait_calls(50)
        stop.set()
        watcher.join()
    assert not load.failures, load.failures[:3]
    assert set(load.versions) == {"1", "2"}
    assert generations == sorted(set(generations))
    assert {name.partition("@")[0] for name in watched} == {"worker-0", "worker-1"}
    assert all(seen == sorted(seen) for seen in watched.values())
    final = {worker["generation"] for worker in gateway.get("/api/snapshot")["workers"]}
    assert min(final) >= generations[-1]  # other tests change this gateway, too


def versions_of(up, model, users, **also):
    """Which version answers each user: over HTTP, over gRPC, and on a gRPC stream."""
    found = {user: [] for user in users}
    for module, url in ((tritonclient.http, up.http), (tritonclient.grpc, up.grpc)):
        with module.InferenceServerClient(url) as client:
            for user in users:
                answer = client.infer(model, [seven(module)], headers={"x-user-id": user, **also})
                found[user].append(version_of(answer))
    for user in users:
        answers = queue.SimpleQueue()
        with tritonclient.grpc.InferenceServerClient(up.grpc) as client:
            client.start_stream(
                lambda result, error, put=answers.put: put((result, error)),
                headers={"x-user-id": user, **also},
            )
            client.async_stream_infer(model, [seven(tritonclient.grpc)])
            answer, error = answers.get(timeout=30)
            assert error is None, error
            found[user].append(version_of(answer))
            client.stop_stream()
    return found


def test_a_user_stays_with_a_version_on_every_protocol_and_a_team_has_its_own(gateway, tmp_path):
    repositories.serve(gateway, repositories.digits(tmp_path / "models", "sticky"))
    users = [f"user-{number}" for number in range(6)]

    def set_route(*words):
        done = harness.servegate("route", "set", "sticky", *words, "--admin-url", gateway.admin)
        assert done.returncode == 0, done.stderr
        split = Split.parse(words[:2])
        return {user: [split.assign("sticky", user)] * 3 for user in users}

    expected = set_route("1=50", "2=50", "--sticky", "header:x-user-id")
    assert {version for found in expected.values() for version in found} == {1, 2}
    assert versions_of(gateway, "sticky", users) == expected
    expected = set_route("1=20", "2=80", "--match", "header:x-team=blue* 1=100")
    assert versions_of(gateway, "sticky", users, **{"x-team": "red"}) == expected
    blue = versions_of(gateway, "sticky", users[:3], **{"x-team": "blue-1"})
    assert blue == {user: [1] * 3 for user in users[:3]}
    shown = harness.servegate("route", "show", "sticky", "--admin-url", gateway.admin)
    assert "x-user-id header" in shown.stderr and "header:x-team=blue* 1=100" in shown.stderr
    set_route("1=20", "2=80", "--match", "none", "--sticky", "none")
    shown = gateway.get("/api/routes/sticky")
    assert (shown["sticky"], shown["matches"]) == ("", [])


def test_copies_of_calls_go_to_a_candidate_and_callers_notice_nothing(gateway, tmp_path):
    model = "mirrored"
    repositories.serve(gateway, repositories.digits(tmp_path / "models", model))
    words = ("route", "set", model, "1=100", "--admin-url", gateway.admin)
    done = harness.servegate(*words, "--mirror", "2=100")
    assert done.returncode == 0, done.stderr
    users = [f"user-{number}" for number in range(10)]
    assert versions_of(gateway, model, users) == {user: [1, 1, 1] for user in users}
    values = json.loads(SEVEN)["inputs"][0]
    rows = {"instances": np.reshape(values["data"], values["shape"]).tolist()}
    url = f"http://{gateway.http}/v1/models/{model}:predict"
    assert harness.request(url, "POST", rows)[0] == 200

    def counted(name, *labels):
        words = (f"servegate_{name}_total{{", f'model="{model}"', *labels)
        found = (line for line in gateway.metrics().splitlines() if all(w in line for w in words))
        return sorted(int(float(line.split()[-1])) for line in found)

    def rows(verdict):
        return counted("mirror_rows", f'verdict="{verdict}"')

    harness.until(lambda: counted("mirrored_calls") == [10, 11], what="the copies have ended")
    harness.until(lambda: sum(counted("mirror_comparisons")) == 21, what="responses are compared")
    compared = counted("mirror_comparisons", 'outcome="compared"')  # or the queue was full
    assert (rows("agrees"), rows("differs")) == (compared, [0]), "both are the same model"
    shown = harness.servegate("route", "show", model, "--admin-url", gateway.admin)
    assert "mirror: 100 % of the calls are also sent to version 2" in shown.stderr
    assert harness.servegate(*words, "--mirror", "none").returncode == 0
    assert gateway.get(f"/api/routes/{model}")["mirror"] is None


@pytest.mark.slow
def test_a_call_that_a_candidate_answers_differently_becomes_a_run(gateway, tmp_path):
    model, url = "disagreeing", ("--admin-url", gateway.admin)
    code, all_of = repositories.PLAIN, "version_policy { all {} }"
    repositories.python_model(tmp_path / "models", model, code, versions=(1, 2), more=all_of)
    other = code.replace(".as_numpy()", ".as_numpy() + 1")
    (tmp_path / "models" / model / "2" / "model.py").write_text(other)
    repositories.serve(gateway, tmp_path / "models")
    words = ("route", "set", model, "1=100", "--mirror", "2=100", "--mirror-keep", *url)
    refused = harness.servegate(*words)
    assert refused.returncode == 2 and "runs code" in refused.stderr
    done = harness.servegate(*words, "--mirror-code")
    assert done.returncode == 0, done.stderr
    called = f"http://{gateway.http}/v2/models/{model}/infer"
    assert harness.request(called, "POST", repositories.request())[0] == 200
    path = f"/api/tries?model={model}"
    harness.until(lambda: gateway.get(path), what="the call is kept")
    [run] = gateway.get(path)
    assert (run["author"], run["versions"], run["agrees"]) == ("mirror", ["1", "2"], False)
    shown = harness.servegate("route", "mirror", model, *url)
    assert "1 × 200" in shown.stderr and "100 %" in shown.stdout
