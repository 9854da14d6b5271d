"""Management, opened: the gateway and Triton hear the same calls, and have to say the same.

What may differ is on a list, with its reason; a call that is on it and does not differ any more
fails, too. The calls stand in an order in which each of them means the same to both.
"""

import json
from collections.abc import Iterator

import harness
import pytest
from repositories import BROKEN, PLAIN, python_model
from tritonclient.grpc import service_pb2 as pb

from . import raw_grpc, raw_http
from .conftest import BareTritonFactory, load
from .management_calls import GRPC, HTTP, MODEL

pytestmark = pytest.mark.triton

_WHY = "the sentence is Triton's, and the reason follows"
_PARSER = "what is wrong with JSON is said in the words of another parser"
_PEOPLE = "without the stack of Python calls and the empty line behind it"
_FORMATS = "Triton has other words over HTTP than over gRPC; the gateway has those of gRPC"
_BOTH = (
    (
        _WHY,
        "a config that is no JSON | a config that is empty | a config of words |"
        " a config with an unknown field | a config that is a list | a config of another model |"
        " a config with an unknown data type | load of a model whose folder is broken",
    ),
    (_PEOPLE, "load of a model whose code is broken"),
)
_OVER_HTTP = (
    (_WHY, "a config with a wrong value | an unknown parameter of a load"),
    (_PEOPLE, "a config whose version is not there"),
    (
        _PARSER,
        "a load of no JSON | a load of blanks | trace settings of no JSON |"
        " trace settings of nothing | log settings of no JSON | log settings of nothing",
    ),
    ("Triton takes no notice of it", "dependents as a word"),
    ("Triton takes it for another number", "a log level beyond 32 bits"),
    (_FORMATS, "a trace count below zero | an unknown log format"),
)


def _by_name(*rows: tuple[str, str]) -> dict[str, str]:
    return {name: reason for reason, names in rows for name in names.split(" | ")}


OTHERWISE = {
    "http": _by_name(*_BOTH, *_OVER_HTTP),
    "grpc": _by_name(*_BOTH, (_WHY, "garbage as a load")),
}
_ANSWERS = {"TraceSetting": pb.TraceSettingResponse, "LogSettings": pb.LogSettingsResponse}

Pair = dict[str, tuple[str, str]]


@pytest.fixture(scope="module")
def pair(
    bare_triton_factory: BareTritonFactory, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    """Where a Triton and the gateway speak each protocol."""
    triton = bare_triton_factory()
    home = tmp_path_factory.mktemp("managed")
    for repository in (triton.repository, home / "models"):
        python_model(repository, MODEL, PLAIN)
        python_model(repository, "other", PLAIN)
        python_model(repository, "failing", BROKEN)
        python_model(repository, "broken", PLAIN, more="nonsense: {")
    load(triton, MODEL)
    flags = ("--allow-management", "--model-repo", str(home / "models"), "--replicas", "1")
    with harness.up(home / "state", *flags) as up:
        yield {"http": (triton.http, up.http), "grpc": (triton.grpc, up.grpc)}


def over_http(name: str, address: str) -> tuple[object, str]:
    """Status and media type, and the body; of an error its sentence."""
    answer = raw_http.ask(address, HTTP[name].data)[0]
    text = answer.body.decode()
    if answer.status != 200:
        text = json.loads(text)["error"]
    return (answer.status, answer.header("content-type")), text


def over_grpc(name: str, address: str) -> tuple[object, str]:
    """Status and messages, and the sentence. A map has no order."""
    call = GRPC[name]
    heard = raw_grpc.make(call, address)
    kind = _ANSWERS.get(call.method)
    messages = [kind.FromString(one) if kind else one for one in heard.messages]
    return (heard.code, messages, heard.keys), heard.details


def test_management_calls_are_answered_as_triton_answers_them(pair: Pair) -> None:
    assert OTHERWISE["http"].keys() <= HTTP.keys() and OTHERWISE["grpc"].keys() <= GRPC.keys()
    surprises = []
    for protocol, calls, make in (("http", HTTP, over_http), ("grpc", GRPC, over_grpc)):
        for name in calls:
            directly, through = (make(name, address) for address in pair[protocol])
            reason = OTHERWISE[protocol].get(name)
            if reason is None:
                good = through == directly
            elif reason == _WHY:
                good = through[0] == directly[0] and through[1].startswith(directly[1] + ": ")
            elif reason == _PARSER:
                start = "failed to parse the request JSON buffer: "
                good = through[0] == directly[0] and through[1].startswith(start)
            else:
                good = through != directly
            if not good:
                surprises.append((protocol, name, directly, through))
    assert surprises == []
