"""Building kits: a folder that has all that a plan needs, for a machine that has the GPU.

What lies in it, and what `onsite.py` adds to it, is said there. A kit is made of an entry of the
repository; its result goes back into the entry only when the golden answers are right.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from serve.core.errors import Invalid
from serve.core.flavours import Flavour
from serve.tensors.codec import MalformedReply, http_request, read_http_reply
from serve.tensors.contracts import Case, judge
from serve.triton.canonical import canonical_text
from serve.triton.config import of_message, parse
from serve.triton.flavoured import configured
from serve.workbench.conversion.faults import failed
from serve.workbench.conversion.plans import onsite
from serve.workbench.conversion.plans.arguments import TRTEXEC, Options, major_of, trtexec
from serve.workbench.conversion.plans.facts import BACKEND, PlanFacts, layers_of, require_precision
from serve.workbench.conversion.plans.placement import on_gpu
from serve.workbench.conversion.request import Precision
from serve.workbench.conversion.sources import digest_of

FORMAT = 1
_FOLDER = "{kit}"  # in the words of a command, for the place where the kit then lies
_MOST = 256 << 20  # bytes of a JSON file or an answer that a kit brings back


@dataclass(frozen=True, slots=True)
class Built:
    """A plan that came back in a kit: its file and its facts."""

    file: Path
    facts: PlanFacts


def write_kit(
    kit: Path,
    *,
    name: str,
    onnx: Path,
    config: str,
    cases: Sequence[Case],
    options: Options,
    precision: Precision,
    image: str,
) -> None:
    """Fill a new folder; `config` is the text of the entry's config.pbtxt.

    `Invalid` when the folder is there already.
    """
    try:
        kit.mkdir(parents=True)
    except FileExistsError as error:
        raise Invalid(
            f"'{kit}' already exists", try_this="remove it, or use its plan with --built"
        ) from error
    shutil.copyfile(onnx, kit / "model.onnx")
    shutil.copyfile(onsite.__file__, kit / "onsite.py")
    (kit / "config.pbtxt").write_text(_config(name, config))
    heads = []
    for number, case in enumerate(cases):
        request = http_request(case.inputs, case.datatypes)
        (kit / f"case-{number}.body").write_bytes(request.body)
        heads.append(request.head_length)
    page = {
        "format": FORMAT,
        "name": name,
        "image": image,
        "trtexec": [TRTEXEC, *_words(options, image)],
        "triton": ["tritonserver", *_backend(options)],
        "cases": heads,
        "precision": str(precision),
        "profiles": [each.to_json() for each in options.profiles],
        "version_compatible": options.version_compatible,
        "hardware": str(options.hardware),
        "tf32": options.tf32,
        "onnx": digest_of(onnx),
    }
    (kit / "kit.json").write_text(json.dumps(page, indent=1))


def read_kit(kit: Path, *, onnx: Path, cases: Sequence[Case]) -> Built:
    """The plan of a kit that was built, judged by these golden cases.

    `trt_build_failed` when nothing was built, or of another ONNX file; `numbers_differ` for an
    answer that is not the expected one, `precision_missing` for a plan that computes in another
    precision.
    """
    asked, built = _page(kit / "kit.json"), _page(kit / onsite.BUILT)
    file = kit / onsite.PLAN
    try:
        if asked["onnx"] != digest_of(onnx):
            raise failed("trt_build_failed", "the kit was made from another ONNX file", hint=_AGAIN)
        if built["sha256"] != digest_of(file):
            raise failed(
                "trt_build_failed", f"{file.name} has changed since the build", hint=_AGAIN
            )
        heads = [int(head) for head in built.pop("answers")]
        layers = layers_of(_text(kit / onsite.LAYERS))
        keys = ("precision", "profiles", "version_compatible", "hardware", "tf32")
        facts = PlanFacts.from_json(
            {**built, **{key: asked[key] for key in keys}, "layers": layers}
        )
    except (KeyError, TypeError, ValueError, AttributeError, OSError, Invalid) as error:
        raise failed("trt_build_failed", f"the kit is incomplete: {error}", hint=_AGAIN) from error
    require_precision(facts.precision, layers)
    if len(heads) != len(cases):
        raise failed(
            "trt_build_failed",
            f"the kit has results for {len(heads)} of {len(cases)} golden cases",
            hint=_AGAIN,
        )
    for number, (case, head) in enumerate(zip(cases, heads, strict=True)):
        _judge(case, number, kit / f"answer-{number}.body", head)
    return Built(file, facts)


_AGAIN = "create the kit again, and build it on the machine with the GPU"


def judge_case(case: Case, number: int, answer: Mapping[str, Any]) -> None:
    """`numbers_differ` when a plan's answer to a golden case is not right."""
    if why := judge(case, answer):
        raise failed("numbers_differ", f"golden case {case.name or number}: {why}")


def _judge(case: Case, number: int, body: Path, head: int) -> None:
    try:
        answer = read_http_reply(_bytes(body), head).outputs
    except (MalformedReply, OSError, ValueError) as error:
        raise failed("trt_build_failed", f"result {number}: {error}", hint=_AGAIN) from error
    judge_case(case, number, answer)


def _words(options: Options, image: str) -> tuple[str, ...]:
    return trtexec(
        options,
        onnx=f"{_FOLDER}/model.onnx",
        plan=f"{_FOLDER}/{onsite.PLAN}",
        layers=f"{_FOLDER}/{onsite.LAYERS}",
        major=major_of(image),
    )


def _backend(options: Options) -> tuple[str, ...]:
    """A Triton opens plans that are version compatible only when it is told to."""
    if not options.version_compatible:
        return ()
    return ("--backend-config=tensorrt,version-compatible=true",)


def _config(name: str, text: str) -> str:
    """The configuration of the plan alone, as its flavour makes it; no file beside it is needed."""
    base = parse(text)
    plan = Flavour("plan", file=onsite.PLAN, backend=BACKEND, config=on_gpu(base))
    message = configured(base, plan).message
    message.name = name
    for field in ("version_policy", "model_warmup"):
        message.ClearField(field)
    for output in message.output:
        output.ClearField("label_filename")
    return canonical_text(of_message(message))


def _page(path: Path) -> dict[str, Any]:
    try:
        page = json.loads(_text(path))
    except (OSError, ValueError, RecursionError) as error:
        why = f"there is no {path.name} in '{path.parent}'" if not path.exists() else str(error)
        raise failed("trt_build_failed", why, hint=_AGAIN) from error
    return page if isinstance(page, dict) else {}


def _text(path: Path) -> str:
    return _bytes(path).decode() if path.is_file() else ""


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise ValueError(f"{path.name} is larger than {_MOST >> 20} MiB")
    return data
