"""Plays trtexec (`trtexec STATUS --…`) and Triton (`tritonserver STATUS FACTOR --…`).

The plan has a header, and behind it the ONNX file; the Triton multiplies what it is asked.
"""

import json
import struct
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

HEAD = "Inference-Header-Content-Length"


def options(words: list[str]) -> dict[str, str]:
    return {word.partition("=")[0]: word.partition("=")[2] for word in words}


def trtexec(status: int, given: dict[str, str]) -> None:
    if status:
        sys.exit(status)
    header = b"ftrt" + bytes(20) + bytes((10, 13, 2, 6))
    Path(given["--saveEngine"]).write_bytes(header + Path(given["--onnx"]).read_bytes())
    layers = {
        "Layers": [{"Name": "twice", "Outputs": [{"Format/Datatype": "Row major linear FP32"}]}]
    }
    Path(given["--exportLayerInfo"]).write_text(json.dumps(layers))


class Server(BaseHTTPRequestHandler):
    factor = 2.0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_POST(self) -> None:
        body, length = self.rfile.read(int(self.headers["Content-Length"])), int(self.headers[HEAD])
        (tensor,) = json.loads(body[:length])["inputs"]
        numbers = struct.unpack(f"<{(len(body) - length) // 4}f", body[length:])
        raw = struct.pack(f"<{len(numbers)}f", *(self.factor * one for one in numbers))
        output = {**tensor, "name": "y", "parameters": {"binary_data_size": len(raw)}}
        head = json.dumps({"model_name": "m", "outputs": [output]}).encode()
        self.send_response(200)
        self.send_header(HEAD, str(len(head)))
        self.send_header("Content-Length", str(len(head) + len(raw)))
        self.end_headers()
        self.wfile.write(head + raw)


def tritonserver(status: int, factor: float, given: dict[str, str]) -> None:
    if status:
        sys.exit(status)
    version = Path(given["--model-repository"]) / given["--load-model"] / "1"
    assert (version / "model.plan").read_bytes().startswith(b"ftrt")
    Server.factor = factor
    HTTPServer((given["--http-address"], int(given["--http-port"])), Server).serve_forever()


if __name__ == "__main__":
    if sys.argv[1] == "trtexec":
        trtexec(int(sys.argv[2]), options(sys.argv[3:]))
    else:
        tritonserver(int(sys.argv[2]), float(sys.argv[3]), options(sys.argv[4:]))
