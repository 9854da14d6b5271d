"""The targets of fuzzing: what each is called, and the function that plays an input.

A target's seeds lie in `corpus/<name>`. `python -m fuzz.fuzzing <name>` looks for more of them.
"""

from collections.abc import Callable
from pathlib import Path

from fuzz import (
    grpc_clients,
    grpc_framing,
    grpc_tritons,
    http_answers,
    http_paths,
    http_requests,
    inflation,
    names,
    protobuf_messages,
)

CORPUS = Path(__file__).parent / "corpus"
TARGETS: dict[str, Callable[[bytes], None]] = {
    "http-requests": http_requests.play,
    "http-answers": http_answers.play,
    "http-paths": http_paths.play,
    "names": names.play,
    "protobuf": protobuf_messages.play,
    "grpc-clients": grpc_clients.play,
    "grpc-tritons": grpc_tritons.play,
    "grpc-framing": grpc_framing.play,
    "inflation": inflation.play,
}


def seeds(name: str) -> list[Path]:
    return sorted(path for path in (CORPUS / name).iterdir() if path.is_file())
