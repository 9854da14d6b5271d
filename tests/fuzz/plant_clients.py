"""Requests of real clients: what tritonclient writes to a socket, caught as bytes."""

import socket
import threading
from collections.abc import Callable
from struct import pack
from typing import Any

import numpy as np
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from fuzz.http2_peers import SETTINGS, frame


def _caught(say: Callable[[str], None], answer: bytes, enough: Callable[[bytes], bool]) -> bytes:
    """What a client writes to a socket that says `answer`, until it is enough."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        address = f"127.0.0.1:{server.getsockname()[1]}"
        talker = threading.Thread(target=say, args=(address,), daemon=True)
        talker.start()
        connection, _ = server.accept()
        with connection:
            connection.settimeout(10)
            connection.sendall(answer)
            data = b""
            while not enough(data):
                data += connection.recv(65536)
        talker.join(10)
    return data


def _inputs(module: Any) -> list[Any]:
    one = module.InferInput("INPUT0", [1, 4], "FP32")
    one.set_data_from_numpy(np.arange(4, dtype=np.float32).reshape(1, 4))
    text = module.InferInput("TEXT", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"seven"], dtype=object))
    return [one, text]


def tritonclient_http(**options: Any) -> bytes:
    def say(address: str) -> None:
        try:
            http_client.InferenceServerClient(address).infer("m", _inputs(http_client), **options)
        except Exception:
            return  # nobody answers

    def enough(data: bytes) -> bool:
        head, blank, body = data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]
        return bool(blank) and len(body) >= int(length or 0)

    return _caught(say, b"", enough).replace(b"127.0.0.1:", b"triton:")


def tritonclient_grpc(**options: Any) -> bytes:
    def say(address: str) -> None:
        try:
            grpc_client.InferenceServerClient(address).infer(
                "m", _inputs(grpc_client), client_timeout=1, **options
            )
        except Exception:
            return  # nobody answers

    settings = frame(SETTINGS, 0, 0, pack(">HIHI", 1, 0, 4, 1 << 20)) + frame(SETTINGS, 1, 0)
    return _caught(say, settings, lambda data: b"seven" in data)
