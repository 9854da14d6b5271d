"""`servegate infer`: call a model, and see which version answered and why."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from serve.cli.asked import ModelReference, parse_asked
from serve.cli.client import AdminClient, connect, segment
from serve.cli.credentials import api_key
from serve.cli.options import AdminUrl, AsJson, GrpcUrl, KeyFile, Url
from serve.cli.output import as_json, say
from serve.cli.server import data_urls, using
from serve.core.errors import ServegateError

if TYPE_CHECKING:
    from serve.cli.answers import AnswerLine, CallTally
    from serve.cli.callers import Answer, InferCall
    from serve.cli.inputs import Inputs
    from serve.tensors.metadata import TensorSpec


def infer(
    name: Annotated[
        str, typer.Argument(metavar="NAME[@V|:label]", help="Model, version or label.")
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--input",
            metavar="[NAME=]@FILE|random",
            help="Input: an image, .npy, .npz, .json, .csv or .txt file, or random values "
            "(repeatable).",
        ),
    ] = None,
    grpc: Annotated[bool, typer.Option("--grpc", help="Call over gRPC instead of HTTP.")] = False,
    top_k: Annotated[
        int, typer.Option(min=1, metavar="K", help="Number of highest scores to show.")
    ] = 5,
    batch: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Rows per call (default: as in the input, or 1 random row). A single input row "
            "is repeated to fill the batch.",
        ),
    ] = None,
    repeat: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of calls, one after another.")
    ] = 1,
    url: Url = None,
    grpc_url: GrpcUrl = None,
    admin_url: AdminUrl = None,
    key_file: KeyFile = None,
    json: AsJson = False,
) -> None:
    """Send an inference request and show the result.

    Also shows the version that was chosen, and why.

    Example: servegate infer digits --input x=@examples/digits/seven.png --top-k 3

    Example: servegate infer digits@2 --input random --batch 8 --grpc

    Example: servegate infer digits:candidate --input @request.json --json
    """
    from serve.cli import answers, callers
    from serve.tensors.output_kinds import fitting, has_stream, kinds_of, parse_outputs

    asked = parse_asked(name)
    key = api_key(key_file)
    recorded = RecordedModel(connect(admin_url, key_file, timeout=5.0), asked.model)
    (http_url, grpc_target), source = data_urls(url, grpc_url)
    if source:
        say(using(http_url, source))
    with callers.HttpCaller(http_url, key=key) as http:
        metadata = http.metadata(asked)
        ready = _read(inputs or [], asked, metadata.inputs, recorded, batch)
        is_stream = has_stream(parse_outputs({"outputs": recorded.asked_kinds(asked)}))
        if grpc or is_stream:
            with callers.GrpcCaller(grpc_target, key=key) as caller:
                call = caller.stream if is_stream else caller.infer
                answer, tally = _call(call, asked, ready, repeat)
        else:
            answer, tally = _call(http.infer, asked, ready, repeat)
    specs, labels = metadata.outputs, recorded.labels()
    declared = kinds_of(recorded.output_kinds(answer.version), labels, specs)
    readable = fitting(declared, answer.reply.outputs, specs)
    reading = answers.OutputReading(top_k, labels, specs, readable)
    if json:
        document = answers.document(asked.model, answer, reading)
        as_json(document | ({"repeat": tally.document()} if repeat > 1 else {}))
        return
    _print(answers.lines(asked.model, answer, reading, blocks=_has_blocks()))
    if repeat > 1:
        _print([answers.AnswerLine(tally.line())])


class RecordedModel:
    """What the control plane knows of a model; asked once, and only when it is needed."""

    def __init__(self, admin: AdminClient, model: str) -> None:
        self._admin = admin
        self._model = model
        self._detail: Mapping[str, Any] | ServegateError | None = None
        self._kinds: dict[str, Mapping[str, Any]] = {}  # by version

    def preprocessing(self) -> Mapping[str, Any]:
        """The recorded preprocessing, empty when there is none; an error when nobody answers."""
        found: Mapping[str, Any] = self._read().get("preprocessing") or {}
        return found

    def labels(self) -> Mapping[str, Sequence[str]]:
        """The label texts by output. They are a comfort: without them values are shown."""
        try:
            found: Mapping[str, Sequence[str]] = self._read().get("output_labels") or {}
        except ServegateError as error:
            say(f"class names and output kinds are not available: {error}")
            return {}
        return found

    def asked_kinds(self, asked: ModelReference) -> Mapping[str, Any]:
        """The same of the version that is most likely to answer."""
        try:
            detail = self._read()
        except ServegateError:
            return {}
        shares: Mapping[str, float] = detail.get("split") or {}
        likely = max(shares, key=lambda version: shares[version], default="")
        labels: Mapping[str, int] = detail.get("labels") or {}
        found = asked.selector if asked.selector.isdigit() else labels.get(asked.selector)
        return self.output_kinds(str(found or likely))

    def output_kinds(self, version: str) -> Mapping[str, Any]:
        """How a version says that its outputs are to be read; nothing where that is not known."""
        if not version or isinstance(self._detail, ServegateError):
            return {}
        if version not in self._kinds:
            path = f"/api/models/{segment(self._model)}/versions/{segment(version)}/configuration"
            try:
                self._kinds[version] = self._admin.get(path).get("output_kinds") or {}
            except ServegateError:
                self._kinds[version] = {}
        return self._kinds[version]

    def _read(self) -> Mapping[str, Any]:
        if self._detail is None:
            try:
                self._detail = self._admin.get(f"/api/models/{segment(self._model)}")
            except ServegateError as error:
                self._detail = error
        if isinstance(self._detail, ServegateError):
            raise self._detail
        return self._detail


def _read(
    texts: Sequence[str],
    asked: ModelReference,
    wanted: "Mapping[str, TensorSpec]",
    recorded: RecordedModel,
    batch: int | None,
) -> "Inputs":
    """The inputs, ready to send; what people should know about them is said."""
    import numpy as np

    from serve.cli.inputs import InputReader

    reader = InputReader(asked.model, wanted, recorded.preprocessing, np.random.default_rng())
    ready = reader.read(texts, batch)
    for note in ready.notes:
        say(note)
    return ready


def _call(
    call: "InferCall", asked: ModelReference, ready: "Inputs", times: int
) -> "tuple[Answer, CallTally]":
    """The same call `times` times: the last answer, and a tally of all."""
    from serve.cli.answers import CallTally

    calls = []
    for _ in range(times):
        answer = call(asked, ready.tensors, ready.datatypes)
        calls.append((answer.version, answer.milliseconds))
    return answer, CallTally.of(calls)


def _print(lines: "Iterable[AnswerLine]") -> None:
    """On a terminal with bars, in colour unless NO_COLOR is set; as plain text elsewhere."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        if console.is_terminal:
            console.print(Text(line.text) + Text(f"  {line.bar}" if line.bar else "", style="cyan"))
        else:
            print(line.text)


def _has_blocks() -> bool:
    return (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
