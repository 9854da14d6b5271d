"""What is said and refused before anything starts."""

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path

import pytest

from serve.app.addresses import kept_keys, require_safe_addresses
from serve.app.offline import keys_at_rest
from serve.app.open_files import LEAST
from serve.app.paths import STORE_FILE
from serve.app.proxy import relay_line
from serve.app.secret import known_secret, shared_secret
from serve.app.up import warning_of_management
from serve.core.access import Role
from serve.core.errors import CannotStart
from serve.settings import Settings

TRITON = ("127.0.0.1:1:2:3",)


def test_management_without_a_place_for_models_opens_less_and_says_so() -> None:
    opened = {"allow_management": True, "triton": TRITON, "model_repo": ""}
    warning = warning_of_management(Settings(**opened, delivery="folder"))
    assert "--allow-management does not allow loading and unloading" in warning
    for changed in (
        {"delivery": "agents"},
        {"allow_management": False},
        {"model_repo": "models"},
        {"triton": ()},
    ):
        assert warning_of_management(Settings(**opened | changed)) == "", changed


def test_a_line_of_a_child_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    relay_line("it begins")
    assert capsys.readouterr().err == "it begins\n"


def test_a_line_is_lost_when_stderr_is_on_a_full_disk() -> None:
    full = open("/dev/full", "w")  # noqa: PTH123, SIM115 - closing it fails, too
    with contextlib.redirect_stderr(full):
        relay_line("it is lost")
    with contextlib.suppress(OSError):
        full.close()


# --- open files -----------------------------------------------------------------------------------

START = """
import os, resource, sys
from serve.app.open_files import allow_open_files
from serve.core.errors import CannotStart
from serve.settings import Settings

for case in sys.argv[1:]:
    if os.fork():
        os.wait()
        continue
    soft, hard, data = map(int, case.split())
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        said = allow_open_files(Settings(max_connections=1000, max_in_flight=100), data=bool(data))
    except CannotStart as error:
        said = error
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], said, sep="|", flush=True)
    os._exit(0)
"""
FEW = "the limit of open files (ulimit -n) is only 64: a process needs at least 256"
LESS = "warning: the limit of open files (ulimit -n) is only 500. "
CASES = {  # the soft and the hard limit, and whether it is a data plane: the soft limit then
    "64 4000 1": (2200, ()),
    "3000 4000 1": (3000, ()),
    "64 500 1": (500, (LESS, "needs 2200 for max_connections = 1000")),
    "64 500 0": (LEAST, ()),
    "64 64 1": (64, (FEW, "ulimit -n 2200 before the start")),
    "64 64 0": (64, (FEW, f"ulimit -n {LEAST} before the start")),
}


def test_the_soft_limit_is_raised_as_far_as_is_needed_and_a_hard_one_below_that_is_named() -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, *CASES], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    for line, (case, (limit, words)) in zip(lines, CASES.items(), strict=True):
        found, _, said = line.partition("|")
        assert int(found) == limit, case
        assert bool(said) == bool(words) and all(one in said for one in words), (case, said)


# --- which ports may be opened where others reach them --------------------------------------------


class Scene:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(self, **more: object) -> Settings:
        return Settings(state=str(self._folder), **more)  # type: ignore[arg-type]

    def key(self, role: Role, expires_in: float | None = None) -> str:
        with keys_at_rest(self.settings(), "ada", "") as keys:
            return str(keys.create(role, ["*"], expires_in, "")["id"])

    def revoke(self, identity: str) -> None:
        with keys_at_rest(self.settings(), "ada", "") as keys:
            keys.revoke(identity)

    def refusal(self, *ports: str, knows_keys: bool = True, **more: object) -> str:
        """The sentence, empty when the ports may be opened."""
        try:
            asyncio.run(
                require_safe_addresses(
                    self.settings(**more),
                    data="data" in ports,
                    admin="admin" in ports,
                    knows_keys=knows_keys,
                )
            )
        except CannotStart as error:
            return str(error)
        return ""


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


OPEN = {"host": "0.0.0.0", "tls_cert": "cert.pem"}
ADMIN_OPEN = {"admin_host": "0.0.0.0", "tls_cert": "cert.pem"}


def test_loopback_and_an_address_that_is_not_opened_need_nothing(scene: Scene) -> None:
    for auth in ("auto", "keys", "none"):
        assert scene.refusal("data", "admin", auth=auth) == ""
    assert scene.refusal("data", admin_host="0.0.0.0") == ""
    assert scene.refusal("admin", host="0.0.0.0") == ""


def test_without_tls_a_port_that_others_reach_is_refused_whatever_keys_there_are(
    scene: Scene,
) -> None:
    scene.key(Role.ADMIN)
    told = scene.refusal("data", host="10.0.0.1")
    assert told.startswith("listening on 10.0.0.1 is not safe: without TLS, API keys would cross")
    assert "--tls-cert FILE and --tls-key FILE" in told and "--insecure" in told
    both = scene.refusal("data", "admin", host="10.0.0.1", admin_host="10.0.0.2")
    assert "10.0.0.1, 10.0.0.2" in both


def test_without_any_authentication_tls_does_not_help(scene: Scene) -> None:
    told = scene.refusal("data", auth="none", **OPEN)
    assert "'auth' is 'none'" in told and "set 'auth' to 'auto'" in told


def test_a_data_port_opens_once_there_is_any_key_and_the_admin_port_once_there_is_an_admins(
    scene: Scene,
) -> None:
    told = scene.refusal("data", **OPEN)
    assert "no API key" in told and "servegate key create --role predictor" in told
    scene.key(Role.PREDICTOR)
    assert scene.refusal("data", **OPEN) == ""
    told = scene.refusal("admin", **ADMIN_OPEN)
    assert "no admin key" in told and "servegate key create --role admin" in told
    scene.key(Role.ADMIN)
    assert scene.refusal("admin", **ADMIN_OPEN) == ""


def test_the_admin_port_opens_to_whoever_gave_the_secret(scene: Scene) -> None:
    assert scene.refusal("admin", secret="s" * 32, **ADMIN_OPEN) == ""
    shared_secret(scene.settings())  # one that was made here is known to nobody else
    assert "no admin key" in scene.refusal("admin", **ADMIN_OPEN)
    assert "no API key" in scene.refusal("data", secret="s" * 32, **OPEN)


def test_revoked_and_expired_keys_open_no_port(scene: Scene) -> None:
    scene.revoke(scene.key(Role.PREDICTOR))
    asyncio.run(_expired(scene))
    assert "no API key" in scene.refusal("data", **OPEN)


async def _expired(scene: Scene) -> None:
    """A key that was valid for a moment, long ago."""
    from serve.control.storage.store import Store, StoreEdit

    store = Store(scene.settings().state_path / STORE_FILE, clock=time.time)
    body = {"digest": "0" * 64, "role": "predictor", "models": ["*"], "expires": 1.0}
    await store.apply(
        StoreEdit("key", "abcd", body | {"created": 0.0, "author": "", "note": ""}, "")
    )
    store.close()


def test_the_operator_may_say_that_the_network_protects_the_ports(scene: Scene) -> None:
    for auth in ("auto", "none"):
        hosts = {"host": "0.0.0.0", "admin_host": "::"}
        assert scene.refusal("data", "admin", insecure=True, auth=auth, **hosts) == ""


def test_a_proxy_asks_for_tls_and_leaves_the_keys_to_the_snapshot(scene: Scene) -> None:
    assert scene.refusal("data", knows_keys=False, **OPEN) == ""
    assert "without TLS" in scene.refusal("data", knows_keys=False, host="0.0.0.0")


def test_looking_for_keys_makes_no_store(scene: Scene) -> None:
    assert not asyncio.run(kept_keys(scene.settings()))
    assert not (scene.settings().state_path / STORE_FILE).exists()


def test_keys_of_a_gateway_that_runs_are_left_to_it(scene: Scene) -> None:
    with keys_at_rest(scene.settings(), "ada", ""), pytest.raises(CannotStart, match="in use"):
        scene.key(Role.ADMIN)


def test_the_secret_is_known_to_whoever_can_read_it_and_is_not_made(scene: Scene) -> None:
    settings = scene.settings()
    assert known_secret(settings) == ""
    assert list(settings.state_path.iterdir()) == []
    assert known_secret(settings) == ""
    assert shared_secret(settings) == known_secret(settings) != ""
    assert known_secret(scene.settings(secret="given-by-hand-16")) == "given-by-hand-16"
