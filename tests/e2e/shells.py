"""Runs what our snippets say, exactly, in a shell; on machines without grpcurl, what it would do.

As a program, this is that grpcurl. It asks the server over reflection what the messages are, and
reads and writes them in protobuf's JSON. Known are -plaintext, -max-msg-sz N and -d JSON.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from serve.wire import protobuf

SHIM = '#!/bin/sh\nexec {python} {script} "$@"\n'
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


class Shell:
    """Runs commands in a folder of its own; `grpcurl` is ours if need be."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tools = folder / "bin"
        tools.mkdir(parents=True)
        if shutil.which("grpcurl") is None:
            shim = tools / "grpcurl"
            shim.write_text(SHIM.format(python=sys.executable, script=__file__))
            shim.chmod(0o755)
        path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {**os.environ, "PATH": path}

    def run(self, language: str, text: str) -> str:
        """What it prints; fails when it does."""
        command = ["bash", "-c", text]
        if language == "python":
            (self.folder / "snippet.py").write_text(text)
            command = [sys.executable, "snippet.py"]
        done = subprocess.run(
            command, cwd=self.folder, env=self._env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, (text, done.stdout, done.stderr)
        return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="grpcurl", prefix_chars="-", allow_abbrev=False)
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-max-msg-sz", type=int, default=4 << 20)
    parser.add_argument("-d", default="")
    parser.add_argument("target")
    parser.add_argument("method")
    asked = parser.parse_args()
    options = [("grpc.max_receive_message_length", asked.max_msg_sz)]
    text = sys.stdin.read() if asked.d == "@" else asked.d
    with grpc.insecure_channel(asked.target, options) as channel:
        service, _, name = asked.method.rpartition("/")
        pool = described(channel, service)
        method = pool.FindServiceByName(service).methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)()
        json_format.Parse(text, request, descriptor_pool=pool)
        call = channel.stream_stream(f"/{asked.method}")
        for answer in call(iter([request.SerializeToString()]), 60):
            told = message_factory.GetMessageClass(method.output_type).FromString(answer)
            print(json_format.MessageToJson(told, descriptor_pool=pool))


def described(channel: grpc.Channel, service: str) -> descriptor_pool.DescriptorPool:
    (answer,) = channel.stream_stream(REFLECTION)(iter([protobuf.field(4, service.encode())]), 60)
    files = {}
    for number, value in protobuf.fields(answer):
        for inner, one in protobuf.fields(value) if number == 4 else ():
            if inner == 1:
                file = descriptor_pb2.FileDescriptorProto.FromString(one)
                files[file.name] = file
    pool = descriptor_pool.DescriptorPool()
    added = set()

    def add(name: str) -> None:
        if name not in added:
            added.add(name)
            for needed in files[name].dependency:
                add(needed)
            pool.Add(files[name])

    for name in files:
        add(name)
    return pool


if __name__ == "__main__":
    main()
