"""Settings: four sources and their order, errors that name their source, and safe addresses."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from refusals import refusal

from serve.core.errors import Invalid
from serve.core.flavours import Machine
from serve.core.limits import Limits
from serve.core.replicas import Replica
from serve.settings import FILE, Explained, Settings, is_loopback, keys_are_required, load

NOWHERE = Path("/nonexistent")


def explained(
    folder: Path,
    file: str = "",
    *,
    environment: Mapping[str, str] | None = None,
    **flags: Any,
) -> Explained:
    if file:
        (folder / FILE).write_text(file)
    return load(flags, environment or {}, folder)


def test_a_setting_that_nobody_gives_has_its_default(tmp_path: Path) -> None:
    given = explained(tmp_path)
    assert given.settings == Settings()
    assert set(given.sources.values()) == {"default"}


def test_a_flag_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    file = "http_port = 1001\ngrpc_port = 1002\nmetrics_port = 1003\n"
    environment = {"SERVEGATE_HTTP_PORT": "2001", "SERVEGATE_GRPC_PORT": "2002"}
    given = explained(tmp_path, file, environment=environment, http_port=3001)
    chosen = given.settings
    assert (chosen.http_port, chosen.grpc_port) == (3001, 2002)
    assert (chosen.metrics_port, chosen.admin_port) == (1003, 8080)
    assert [given.sources[name] for name in ("http_port", "grpc_port", "metrics_port")] == [
        "flag --http-port",
        "environment SERVEGATE_GRPC_PORT",
        "servegate.toml",
    ]


def test_a_flag_that_was_not_given_decides_nothing_and_one_may_say_no(tmp_path: Path) -> None:
    environment = {"SERVEGATE_REPLICAS": "3"}
    assert explained(tmp_path, environment=environment, replicas=None).settings.replicas == 3
    assert not explained(tmp_path, "insecure = true", insecure=False).settings.insecure


def of_variable(folder: Path, name: str, text: str) -> object:
    """The setting that an environment variable gives."""
    given = explained(folder, environment={f"SERVEGATE_{name.upper()}": text})
    return getattr(given.settings, name)


def test_a_variable_is_read_as_the_type_of_its_setting(tmp_path: Path) -> None:
    for name, text, value in (
        ("http_port", "1234", 1234),
        ("call_timeout", "2.5", 2.5),
        ("insecure", "yes", True),
        ("insecure", "FALSE", False),
        ("insecure", "", False),
        ("triton_args", " --a=1 , --b ", ("--a=1", "--b")),
        ("triton_args", "", ()),
        ("state", "/srv/größe", "/srv/größe"),
    ):
        assert of_variable(tmp_path, name, text) == value, (name, text)


COUNTS = (
    *("replicas", "workers", "max_in_flight", "max_body_bytes", "max_inflated_bytes"),
    *("max_in_flight_bytes", "max_chunks", "max_connections", "max_streams"),
    *("max_resets", "max_pings"),
)
TIMES = (
    *("head_timeout", "body_timeout", "idle_timeout", "call_timeout", "connect_timeout"),
    *("drain_timeout", "start_timeout", "tick", "scan_interval"),
)
BROKEN = {
    "http_port": ["eighty", "80.5", "", "0", "65536", "-1"],
    **{name: ["none", "", "1.5", "0", "-1"] for name in COUNTS},
    **{name: ["soon", "", "0", "-1", "nan", "inf", "-inf"] for name in TIMES},
    "max_head_bytes": ["64k", "1023", "0", "-1"],
    "max_frame_bytes": ["big", "0", "16383", "16777216"],
    "max_continuations": ["none", "-1"],
    "min_body_rate": ["slow", "1.5", "-1"],
    "cancel": ["", "Auto", "never", "forward,absorb"],
    "insecure": ["maybe", "2"],
    "log_level": ["loud"],
    "log_format": ["xml"],
    "triton": ["localhost", "a=1:2:3", "a=h:1:2:3,a=h:4:5:6"],
    "discover": ["consul", "kubernetes=A", "dns=host", "kubernetes,kubernetes"],
    "gateway": ["http://a,http://b", "a,b,c"],
}


def test_a_value_that_does_not_fit_is_refused_with_its_source(tmp_path: Path) -> None:
    for name, text in [(name, text) for name, texts in BROKEN.items() for text in texts]:
        from_environment = refusal(Invalid, of_variable, tmp_path, name, text)
        from_flag = refusal(Invalid, load, {name: text}, {}, tmp_path)
        assert f"environment SERVEGATE_{name.upper()}" in str(from_environment)
        assert f"flag --{name.replace('_', '-')}" in str(from_flag), text


def test_a_value_at_the_edge_of_what_fits_is_taken(tmp_path: Path) -> None:
    edges = dict.fromkeys(COUNTS, ("1",)) | dict.fromkeys(TIMES, ("0.001",))
    edges |= {
        "max_head_bytes": ("1024",),
        "max_frame_bytes": ("16384", "16777215"),
        "max_continuations": ("0",),
        "min_body_rate": ("0",),
        "cancel": ("auto", "forward", "absorb"),
    }
    for name, text in [(name, text) for name, texts in edges.items() for text in texts]:
        value = of_variable(tmp_path, name, text)
        assert value == type(value)(text), name


WRONG_LINES = """\
http_port = '80x'
max_body_bytes = 0
max_head_bytes = 100
body_timeout = inf
cancel = 'never'
cancel = true
http_port = true
http_port = 80.5
http_port = [80]
http_port = 2020-01-01
call_timeout = [1]
call_timeout = true
triton = 5
host = ['a']
http_ports = 80
http_port
\udcff"""


def test_a_value_of_the_file_that_does_not_fit_names_the_file(tmp_path: Path) -> None:
    for line in (*WRONG_LINES.splitlines(), "[http_port]\nx = 1"):
        (tmp_path / FILE).write_bytes(line.encode("utf-8", "surrogateescape"))
        assert "servegate.toml" in str(refusal(Invalid, load, {}, {}, tmp_path)), line


def test_two_listeners_may_not_have_the_same_port(tmp_path: Path) -> None:
    assert "same port" in str(refusal(Invalid, explained, tmp_path, http_port=8001))


def test_a_list_may_be_written_as_one_in_the_file(tmp_path: Path) -> None:
    given = explained(tmp_path, 'triton = ["a=h:1:2:3", "h:4:5:6"]')
    assert given.settings.tritons() == (
        Replica("a", "h", 1, 2, 3),
        Replica("triton-1", "h", 4, 5, 6),
    )


def test_settings_survive_the_way_to_a_child_process() -> None:
    settings = Settings(
        model_repo="a folder/größe",
        triton=("a=h:1:2:3", "b=[::1]:4:5:6"),
        triton_args=("--cache-config=local,size=1048576", "--x"),
        call_timeout=0.1,
        insecure=True,
        seed=-1,
        secret="s3cret=",
    )
    assert load({}, settings.environment(), NOWHERE).settings == settings


def test_every_setting_is_in_the_environment_of_a_child_process() -> None:
    names = {f"SERVEGATE_{row.name.upper()}" for row in dataclasses.fields(Settings)}
    assert set(Settings().environment()) == names


LIMITS = {
    "max_body_bytes": "body",
    "max_head_bytes": "head",
    "max_in_flight_bytes": "in_flight",
    "max_inflated_bytes": "inflated",
    "call_timeout": "call",
    "head_timeout": "head_time",
    "body_timeout": "body_idle",
    "min_body_rate": "body_rate",
    "idle_timeout": "idle",
    "max_chunks": "chunks",
    "max_incomplete": "incomplete",
    "max_connections": "connections",
    "max_streams": "streams",
    "max_frame_bytes": "frame",
    "max_continuations": "continuations",
    "max_resets": "resets",
    "max_pings": "pings",
}


def test_every_limit_has_a_setting() -> None:
    assert set(LIMITS.values()) == {row.name for row in dataclasses.fields(Limits)}


def test_a_setting_decides_its_limit_and_no_other() -> None:
    before = dataclasses.asdict(Settings().limits)
    for name, limit in LIMITS.items():
        value = before[limit] + 1
        after = dataclasses.asdict(dataclasses.replace(Settings(), **{name: value}).limits)
        assert after == before | {limit: value}, name


def test_only_this_machine_reaches_loopback() -> None:
    here = ("127.0.0.1", "127.9.9.9", "::1", "localhost")
    elsewhere = ("0.0.0.0", "::", "10.0.0.1", "example.com", "", "localhost.")
    assert [host for host in (*here, *elsewhere) if is_loopback(host)] == list(here)


def test_keys_are_needed_once_there_was_one_or_others_reach_the_port() -> None:
    for settings, guarded, needed in (
        (Settings(), False, False),
        (Settings(), True, True),
        (Settings(insecure=True), True, True),
        (Settings(host="0.0.0.0"), False, True),
        (Settings(host="0.0.0.0"), True, True),
        (Settings(host="0.0.0.0", insecure=True), False, False),
        (Settings(host="0.0.0.0", insecure=True), True, True),
        (Settings(admin_host="0.0.0.0"), False, False),
        (Settings(auth="keys"), False, True),
        (Settings(auth="keys", insecure=True), False, True),
        (Settings(auth="none"), True, False),
        (Settings(auth="none", host="0.0.0.0"), True, False),
    ):
        assert keys_are_required(settings, guarded) is needed, (settings, guarded)
    settings = Settings(host="0.0.0.0")  # each plane is judged by its own address
    assert not keys_are_required(settings, False, host=settings.admin_host)
    assert keys_are_required(settings, False, host="10.0.0.1")


def test_workers_find_the_control_plane() -> None:
    for settings, url in (
        (Settings(), "http://127.0.0.1:8080"),
        (Settings(admin_host="0.0.0.0", admin_port=9), "http://127.0.0.1:9"),
        (Settings(admin_host="::"), "http://[::1]:8080"),
        (Settings(admin_host="::1"), "http://[::1]:8080"),
        (Settings(control="http://control:80/"), "http://control:80"),
        (Settings(tls_cert="chain.pem"), "https://127.0.0.1:8080"),
    ):
        assert settings.control_url == url


def machines(*facts: str) -> Settings:
    return load({"machine_facts": list(facts)}, {}, NOWHERE).settings


def test_a_replica_has_the_facts_of_its_pool_and_before_them_its_own() -> None:
    given = machines(
        "a100.compute_capability=8.0", "a100.tensorrt=10.13.2", "odd.one.tensorrt=10.9.0"
    )
    assert given.machine("any", "a100") == Machine("8.0", "10.13.2", gpu=True)
    assert given.machine("odd.one", "a100") == Machine("8.0", "10.9.0", gpu=True)
    assert given.machine("any", "default") == given.machine("quarantine") == Machine()


def test_what_is_no_fact_is_refused_at_the_start() -> None:
    for fact in ("gpu=true", "a100", "a100.gpu", "a100.colour=red", "a.gpu=1"):
        refusal(Invalid, machines, fact)
