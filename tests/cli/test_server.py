"""Which server commands talk to, and whose it has to be, against a real HTTP server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from cli.commands import Done, servegate
from cli.http_servers import Request, answering

from serve.app.paths import GATEWAY_FILE
from serve.core import commands
from serve.settings import Settings

_LISTS = ("/api/models", "/api/replicas", "/api/discovery")
OURS, OTHER = "00000000000000aa", "00000000000000bb"


class Gateway:
    """An admin API with an id; `asked` are the requests that came, except for the id."""

    def __init__(self, identity: str) -> None:
        self.asked: list[str] = []
        self.url = ""
        self.identity: object = {"gateway": identity}

    def answer(self, request: Request) -> tuple[int, Any]:
        if request.path == "/livez":
            assert "authorization" not in request.headers
            return 200, b"" if self.identity is None else self.identity
        self.asked.append(f"{request.method} {request.path}")
        if request.path in _LISTS:
            return 200, []
        return 200, {"generation": 1, "in_force": True, "split": {"1": 100}, "routed": True}


@contextmanager
def serving(gateway: Gateway) -> Iterator[None]:
    with answering(gateway.answer) as gateway.url:
        yield


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    one = Gateway(OURS)
    with serving(one):
        yield one


def port_of(gateway: Gateway) -> str:
    return gateway.url.rpartition(":")[2]


@pytest.fixture
def folder(tmp_path: Path, gateway: Gateway) -> Path:
    """A folder whose configuration names the gateway's port."""
    (tmp_path / "servegate.toml").write_text(f"admin_port = {port_of(gateway)}\n")
    return tmp_path


def has_run(folder: Path, identity: str) -> None:
    """The state folder of a gateway that has run here."""
    state = folder / ".servegate"
    state.mkdir()
    (state / GATEWAY_FILE).write_text(identity)


def set_route(folder: Path, *words: str, **environment: str) -> Done:
    return servegate("route", "set", "m", "1=100", *words, folder=folder, **environment)


def test_a_command_reaches_the_gateway_of_its_folder(folder: Path, gateway: Gateway) -> None:
    for words in ("model ls", "replica ls", "route show m", "route set m 1=100"):
        (folder / "servegate.toml").write_text(f"admin_port = {port_of(gateway)}\n")
        done = servegate(*words.split(), folder=folder)
        assert done.returncode == 0, done.stderr
        assert f"using {gateway.url} (servegate.toml)" in done.stderr.splitlines()
        assert "using" not in done.stdout
        (folder / "servegate.toml").write_text(f'admin_url = "{gateway.url}/"\n')
        done = servegate(*words.split(), folder=folder)
        assert f"using {gateway.url} (servegate.toml)" in done.stderr
    assert {asked.split()[1] for asked in gateway.asked} >= {*_LISTS, "/api/routes/m"}


def test_what_is_given_comes_first_and_is_not_repeated(tmp_path: Path, gateway: Gateway) -> None:
    (tmp_path / "servegate.toml").write_text("admin_port = 9\n")
    by_flag = servegate("model", "ls", "--admin-url", gateway.url, folder=tmp_path)
    by_variable = servegate("model", "ls", folder=tmp_path, SERVEGATE_ADMIN_URL=gateway.url)
    assert (by_flag.stderr, by_variable.stderr) == ("", "")
    by_port = servegate("model", "ls", folder=tmp_path, SERVEGATE_ADMIN_PORT=port_of(gateway))
    assert by_port.stderr == f"using {gateway.url} (environment SERVEGATE_ADMIN_PORT)\n"
    assert gateway.asked == ["GET /api/models"] * 3
    nobody = servegate("model", "ls", folder=tmp_path, SERVEGATE_ADMIN_PORT="9")
    assert nobody.returncode == 6
    assert nobody.stderr.startswith("using http://127.0.0.1:9 (environment SERVEGATE_ADMIN_PORT)\n")


def test_an_address_that_is_given_needs_no_configuration(tmp_path: Path, gateway: Gateway) -> None:
    (tmp_path / "servegate.toml").write_text("no TOML")
    assert servegate("model", "ls", "--admin-url", gateway.url, folder=tmp_path).returncode == 0
    done = servegate("model", "ls", folder=tmp_path, SERVEGATE_ADMIN_URL=gateway.url)
    assert done.returncode == 0
    assert servegate("model", "ls", folder=tmp_path).returncode == 2


def test_the_defaults_of_shown_commands_are_those_of_the_settings() -> None:
    assert Settings().control_url == commands.ADMIN
    assert Settings().gateway_urls == (commands.HTTP, commands.GRPC, commands.METRICS)


def test_changes_pass_at_the_folders_own_gateway(folder: Path, gateway: Gateway) -> None:
    has_run(folder, OURS)
    for identity in (OURS, ""):  # a standby does not know the id and is left to refuse
        gateway.identity = {"gateway": identity}
        assert set_route(folder).returncode == 0
    assert gateway.asked == ["PUT /api/routes/m"] * 2


def test_nothing_is_changed_at_another_gateway(folder: Path, gateway: Gateway) -> None:
    has_run(folder, OURS)
    changes = (
        "route set m 1=100",
        "key create --role admin",
        "load scenario split --model m --yes",
    )
    for gateway.identity in ({"gateway": OTHER}, None, {}, "no object"):
        for words in changes:
            done = servegate(*words.split(), folder=folder)
            assert (done.returncode, gateway.asked) == (5, []), words
            assert "does not belong to this folder" in done.stderr and OURS in done.stderr
            assert "code: another_gateway" in done.stderr


def test_only_the_flag_means_the_gateway_that_it_names(folder: Path, gateway: Gateway) -> None:
    has_run(folder, OTHER)
    assert set_route(folder, SERVEGATE_ADMIN_URL=gateway.url).returncode == 5
    (folder / "sub").mkdir()
    elsewhere = {"SERVEGATE_STATE": str(folder / ".servegate")}
    elsewhere["SERVEGATE_ADMIN_PORT"] = port_of(gateway)
    assert set_route(folder / "sub", **elsewhere).returncode == 5
    assert gateway.asked == []
    assert set_route(folder, "--admin-url", gateway.url).returncode == 0
    assert gateway.asked == ["PUT /api/routes/m"]
    asked = servegate("model", "ls", folder=folder)
    assert asked.returncode == 0
    assert "warning: the gateway at" in asked.stderr


def test_doctor_says_which_gateway_it_asked_and_whose_it_is(folder: Path, gateway: Gateway) -> None:
    line = next(
        one
        for one in servegate("doctor", folder=folder).stdout.splitlines()
        if "control plane" in one
    )
    assert line == f"ok    control plane: {gateway.url} (servegate.toml): 0 models"
    has_run(folder, OTHER)
    done = servegate("doctor", folder=folder)
    assert done.returncode == 1
    assert f"FAIL  control plane: the gateway at {gateway.url} does not belong" in done.stdout


def test_calls_go_to_the_data_port_that_the_folder_configures(tmp_path: Path) -> None:
    (tmp_path / "servegate.toml").write_text("http_port = 9\n")
    done = servegate("infer", "m", folder=tmp_path)
    assert done.stderr.startswith("using http://127.0.0.1:9 (servegate.toml)\n")
    assert "the gateway at http://127.0.0.1:9 does not respond" in done.stderr
    given = servegate("infer", "m", "--url", "http://127.0.0.1:9", folder=tmp_path)
    assert "using http://127.0.0.1:9 " in given.stderr  # for the gRPC port, which is not given


def test_commands_are_shown_with_the_addresses_that_are_not_the_defaults() -> None:
    shown: tuple[tuple[dict[str, str], str], ...] = (
        ({"admin": "http://127.0.0.1:8080/"}, ""),
        ({"admin": "http://127.0.0.1:25080/"}, " --admin-url http://127.0.0.1:25080"),
        ({"http": "127.0.0.1:8000", "grpc": "127.0.0.1:8001"}, ""),
        ({"http": "https://a b", "admin": ""}, " --url 'https://a b'"),
    )
    for urls, flags in shown:
        assert commands.addressed("servegate load run", **urls) == f"servegate load run{flags}"
