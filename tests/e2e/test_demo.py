"""`make demo`, as a newcomer runs it: each command that it prints works as printed."""

import os
import signal
import socket
import subprocess
import sys
import urllib.request

import harness
import pytest

pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def demo():
    """The demo on its own ports; they are the default ones, because its commands name them."""
    for port in (8000, 8001, 8002, 8080):
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)), f"port {port} must be free for the demo"
    process = subprocess.Popen(
        [sys.executable, "examples/digits/demo.py"],
        cwd=harness.ROOT,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    said = []
    for line in process.stderr:
        said.append(line.rstrip("\n"))
        if line.startswith("Ctrl-C stops the demo"):
            break
    yield process, said
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(15) == 0
    process.stderr.close()


@pytest.mark.slow
def test_each_printed_command_works_as_printed(demo):
    _, said = demo
    module = harness.load_example("examples/digits/demo.py")
    printed = [line.strip() for line in said if line.startswith("  ") and "digits" in line]
    assert [line for line in printed if line in module.commands()] == list(module.commands())
    infer, curl, rows, classify, load, push = (
        subprocess.run(
            command, shell=True, cwd=harness.ROOT, capture_output=True, text=True, timeout=120
        )
        for command in module.commands()
    )
    assert infer.returncode == 0, infer.stderr
    assert "7" in infer.stdout
    assert curl.returncode == 0 and '"model_name":"digits"' in curl.stdout
    assert rows.returncode == 0 and '"predictions": [[' in rows.stdout
    assert classify.returncode == 0 and "from version" in classify.stdout
    assert load.returncode == 0 and "http-binary" in load.stdout, load.stdout + load.stderr
    assert push.returncode == 0 and "digits:fresh points to it" in push.stderr, push.stderr


def test_the_printed_page_has_both_versions_between_which_traffic_is_split(demo):
    _, said = demo
    (page,) = [word for line in said for word in line.split() if "/try/" in word]
    with urllib.request.urlopen(page, timeout=30) as answer:
        text = answer.read().decode()
    assert "<canvas" in text or "Draw" in text
    assert text.count('<option value="1" selected') == text.count('<option value="2" selected') == 1
    _, route = harness.request("http://127.0.0.1:8080/api/routes/digits")
    assert route["split"] == {"1": 90, "2": 10} and route["routed"]
