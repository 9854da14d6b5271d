"""`servegate model push`: uploads a version and publishes it."""

import asyncio
import contextlib
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli import convert_options as converting
from serve.cli.client import connect
from serve.cli.features import required
from serve.cli.options import AdminUrl, AsJson, KeyFile, Reason
from serve.cli.output import table
from serve.cli.panels import option
from serve.core.errors import Invalid
from serve.core.names import check_label

if TYPE_CHECKING:
    from serve.tensors.expected_outputs import Tolerance
    from serve.tensors.signature import ModelSignature

_COMMIT = re.compile(r"^[0-9a-f]{7,64}(-dirty)?\Z")
_WAIT = 900.0  # seconds
_GOLDEN = "Golden cases"

Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="LABEL",
        help="Label to point at the version once the version is ready (repeatable).",
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Send all traffic to the version when it is ready.")
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until the version is ready.")]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Time limit of --wait.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be uploaded, without uploading anything.")
]
Again = Annotated[
    bool, typer.Option("--again", help="Create a new version even if an identical one exists.")
]
Golden = Annotated[
    list[Path] | None,
    option(
        _GOLDEN,
        "FILE",
        "Golden cases: an .npz file with inputs and expected outputs (repeatable).",
        "--golden",
    ),
]
Atol = Annotated[
    float | None,
    option(
        _GOLDEN,
        "TOLERANCE",
        "Absolute tolerance for the golden cases (default: 1e-4, or none if only --golden-top1 is "
        "given).",
        "--golden-atol",
        min=0,
    ),
]
Rtol = Annotated[
    float | None,
    option(
        _GOLDEN,
        "TOLERANCE",
        "Relative tolerance for the golden cases (default: 1e-3, or none if only --golden-top1 is "
        "given).",
        "--golden-rtol",
        min=0,
    ),
]
Top1 = Annotated[
    float | None,
    option(
        _GOLDEN,
        "SHARE",
        "Fraction of rows whose top-1 class must agree, from 0 to 1 (default: not checked).",
        "--golden-top1",
        max=1,
    ),
]
SourceVersion = Annotated[
    int | None,
    typer.Option(
        "--source-version",
        min=1,
        metavar="N",
        help="Version folder to push (default: the highest).",
    ),
]
Convert = Annotated[
    bool,
    option(
        converting.CONVERSION,
        "",
        "Convert a TensorFlow model to ONNX, and verify the result.",
        "--convert",
    ),
]
ConvertTimeout = Annotated[
    str,
    option(converting.LIMITS, "DURATION", "Time limit of the conversion.", "--convert-timeout"),
]
Tags = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="KEY=VALUE", help="Tag of the version (repeatable)."),
]
GitCommit = Annotated[
    str,
    typer.Option(
        "--git-commit",
        metavar="SHA|auto",
        help="Git commit that the version was built from; 'auto' reads it from git.",
    ),
]


def push(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PATH",
            help="Triton or MLflow model folder, or .onnx file; with --convert, a SavedModel "
            "folder, or a .keras or .h5 file.",
        ),
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the model.")],
    labels: Labels = None,
    live: Live = False,
    wait: Wait = False,
    timeout: Timeout = _WAIT,
    dry_run: DryRun = False,
    again: Again = False,
    golden: Golden = None,
    golden_atol: Atol = None,
    golden_rtol: Rtol = None,
    golden_top1: Top1 = None,
    source_version: SourceVersion = None,
    convert: Convert = False,
    signature: converting.Signature = "",
    precision: converting.Precision = "fp32",
    samples: converting.Samples = "",
    labelled: converting.Labelled = "",
    max_drop: converting.MaxDrop = "0.5pp",
    atol: converting.Atol = None,
    rtol: converting.Rtol = None,
    nchw: converting.Nchw = None,
    max_batch_size: converting.MaxBatchSize = None,
    seed: converting.Seed = 0,
    accept_unverified: converting.AcceptUnverified = False,
    memory: converting.Memory = "",
    convert_timeout: ConvertTimeout = "30m",
    tags: Tags = None,
    git_commit: GitCommit = "",
    reason: Reason = "",
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Push a new version of a model. Run the command again to resume an interrupted push.

    Example: servegate model push model_repo/digits digits --label candidate --wait

    Example: servegate model push digits.onnx digits --golden cases.npz --live --wait

    Example: servegate model push saved_model digits --convert --samples rows.npz
    """
    from serve.cli.endings import report_end
    from serve.cli.golden import with_golden
    from serve.cli.push_steps import Pushing, PushRequest
    from serve.cli.sources import convertible
    from serve.cli.talk import talk

    pushing = Pushing(connect(admin_url, key_file, reason=reason), talk(json=json), model=name)
    with report_end(pushing.talk, pushing.stopped), contextlib.ExitStack() as kept:
        wish = PushRequest(
            labels=tuple(check_label(label) for label in labels or ()),
            live=live,
            again=again,
            git_commit=_commit(git_commit, path),
            tags=_tags(tags or ()),
            wait=timeout if wait else None,
        )
        inside = convertible(path) if convert else None
        if inside is None:
            source = pushing.open(path, read_model, version=source_version, is_converting=convert)
        else:
            conversion = required("conversion.cli.push", "model push --convert")
            request = conversion.make_request(
                str(inside),
                signature=signature,
                precision=precision,
                nchw=nchw or (),
                samples=samples,
                labelled=labelled,
                max_drop=max_drop,
                atol=atol or (),
                rtol=rtol or (),
                max_batch_size=max_batch_size,
                seed=seed,
                accept_unverified=accept_unverified,
            )
            limits = conversion.limits_of(memory, convert_timeout)
            making = conversion.converted(request, path, name, talk=pushing.talk, limits=limits)
            source = pushing.take(kept.enter_context(making))
        if golden:
            tolerance = _tolerance(golden_atol, golden_rtol, golden_top1)
            source = with_golden(source, golden, tolerance, read_model)
        blobs = pushing.take_digests(source)
        if dry_run:
            result = pushing.rehearse(source, blobs, read_model)
        else:
            result = asyncio.run(pushing.run(source, blobs, wish))
        pushing.talk.tell("result", ok=True, exit=0, **result)
    if not json:
        _print(result, name)


def read_model(path: Path) -> "ModelSignature":
    """What a model file says of itself; read in a child process, under limits."""
    from serve.model_files.reader import read_model

    return asyncio.run(read_model(path))


def _print(result: Mapping[str, Any], name: str) -> None:
    """The data on stdout: which version it is, or the table of a rehearsal."""
    if "files" not in result:
        print(f"{name}@{result['version']}")
        return
    table(
        ("FILE", "BYTES", "SHA256", "PRESENT"),
        [
            (
                file["path"],
                str(file["size"]),
                file["sha256"][:12],
                {True: "yes", False: "no", None: "?"}[file["there"]],
            )
            for file in result["files"]
        ],
    )


def _tags(words: Sequence[str]) -> Mapping[str, str]:
    """Read KEY=VALUE."""
    found = {}
    for word in words:
        key, mark, value = word.partition("=")
        if not mark or not key:
            raise Invalid(f"'{word}' is not a valid tag", why="expected KEY=VALUE")
        found[key] = value
    return MappingProxyType(found)


def _tolerance(atol: float | None, rtol: float | None, top1: float | None) -> "Tolerance":
    from serve.tensors.expected_outputs import Tolerance

    if top1 is not None and not 0 < top1 <= 1:
        raise Invalid("--golden-top1 must be above 0 and at most 1")
    return Tolerance(atol, rtol, top1)


def _commit(given: str, path: Path) -> str:
    """The commit that was given, or with `auto` the one that git tells for the path's folder."""
    if given != "auto":
        if given and not _COMMIT.match(given):
            raise Invalid(
                f"'{given}' is not a valid git commit",
                why="expected 7 to 64 hexadecimal digits, or auto",
            )
        return given
    folder = path if path.is_dir() else path.parent
    changed = "-dirty" if _git(folder, "status", "--porcelain", "--", ".") else ""
    return _git(folder, "rev-parse", "HEAD") + changed


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise Invalid(
            "git cannot determine the commit", why=said.strip(), try_this="--git-commit SHA"
        ) from error
    return done.stdout.strip()
