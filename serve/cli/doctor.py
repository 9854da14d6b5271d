"""`servegate doctor`: what this machine has and lacks; each line that is wrong says its fix."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import typer

from serve.cli.options import AdminUrl, AsJson, KeyFile
from serve.cli.output import as_json
from serve.core.errors import Forbidden, ServegateError, Unauthenticated

_ANOTHER = "set another admin_port in servegate.toml, or stop the gateway that uses this port"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """One line: what was looked at, whether it is good, what was seen, how to mend it."""

    name: str
    good: bool
    seen: str
    fix: str = ""


def doctor(admin_url: AdminUrl = None, key_file: KeyFile = None, json: AsJson = False) -> None:
    """Check the configuration, Triton, GPUs, models and replicas.

    Exits with status 1 if a check fails.

    Example: servegate doctor
    """
    findings = [*_settings(), *_triton(), _gpu(), *_control(admin_url, key_file)]
    if json:
        as_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            print(f"{'ok  ' if finding.good else 'FAIL'}  {finding.name}: {finding.seen}")
            if finding.fix:
                print(f"      fix: {finding.fix}")
    if not all(finding.good for finding in findings):
        raise typer.Exit(1)


def _settings() -> list[DoctorFinding]:
    from serve.settings import load

    try:
        settings = load({}, os.environ, Path.cwd()).settings
    except ServegateError as error:
        return [DoctorFinding("settings", False, error.what, error.try_this or error.why)]
    found = [DoctorFinding("settings", True, "servegate.toml and the environment are valid")]
    repository = Path(settings.model_repo)
    if repository.is_dir():
        models = sum(1 for entry in repository.iterdir() if entry.is_dir())
        found.append(
            DoctorFinding(
                "model repository",
                True,
                f"{repository}: {models} model{'' if models == 1 else 's'}",
            )
        )
    else:
        found.append(
            DoctorFinding(
                "model repository", True, f"{repository} does not exist", "pass --model-repo DIR"
            )
        )
    return found


def _triton() -> list[DoctorFinding]:
    from serve.triton.installation import MachineFacts, problems

    found = problems(MachineFacts.here())
    if not found:
        return [DoctorFinding("local Triton", True, "can start")]
    return [DoctorFinding("local Triton", False, str(one), one.try_this) for one in found]


def _gpu() -> DoctorFinding:
    devices = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    if devices:
        return DoctorFinding("GPU", True, ", ".join(devices))
    return DoctorFinding("GPU", True, "none; models run on the CPU")


def _control(admin_url: str | None, key_file: Path | None) -> list[DoctorFinding]:
    from serve.cli.client import connect
    from serve.cli.server import admin_server

    try:
        server = admin_server(admin_url)
    except ServegateError:  # the settings cannot be read: said above
        return []
    where = f"{server.url} ({server.source or 'as given'})"
    admin = connect(replace(server, source=""), key_file, timeout=5)
    try:
        if (stranger := admin.stranger()) is not None:
            return [
                DoctorFinding("control plane", False, f"{stranger.what}: {stranger.why}", _ANOTHER)
            ]
        models = admin.get("/api/models")
        replicas = admin.get("/api/replicas")
    except (Unauthenticated, Forbidden) as error:
        seen = f"{where}: {error.what}"
        return [DoctorFinding("control plane", True, seen, error.try_this or error.why)]
    except ServegateError:
        return [DoctorFinding("control plane", True, f"none at {where}")]
    found = [DoctorFinding("control plane", True, f"{where}: {len(models)} models")]
    for model in models:
        if model["problems"]:
            found.append(
                DoctorFinding(f"model {model['name']}", False, "; ".join(model["problems"]))
            )
    for replica in replicas:
        if replica["state"] != "up":
            found.append(DoctorFinding(f"replica {replica['name']}", False, replica["why"]))
    return found
