"""What grpcurl does with the command lines of our snippets, for machines that do not have it.

It asks the server itself, over reflection, what the messages are, and reads and writes them in
protobuf's JSON. Known are -plaintext, -max-msg-sz N, -H HEADER and -d JSON or @ for stdin.
"""

import argparse
import sys

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from serve.wire import protobuf

REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"


def main() -> None:
    parser = argparse.ArgumentParser(prog="grpcurl", prefix_chars="-", allow_abbrev=False)
    parser.add_argument("-plaintext", action="store_true", required=True)
    parser.add_argument("-max-msg-sz", type=int, default=4 << 20)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d", default="")
    parser.add_argument("target")
    parser.add_argument("method")
    asked = parser.parse_args()
    options = [("grpc.max_receive_message_length", asked.max_msg_sz)]
    text = sys.stdin.read() if asked.d == "@" else asked.d
    pairs = (header.split(": ", 1) for header in asked.H)
    headers = [(name.lower(), value) for name, value in pairs]
    with grpc.insecure_channel(asked.target, options) as channel:
        service, _, name = asked.method.rpartition("/")
        pool = described(channel, service, headers)
        method = pool.FindServiceByName(service).methods_by_name[name]
        request = message_factory.GetMessageClass(method.input_type)()
        json_format.Parse(text, request, descriptor_pool=pool)
        call = channel.stream_stream(f"/{asked.method}")
        try:
            answers = list(call(iter([request.SerializeToString()]), 60, headers))
        except grpc.RpcError as error:
            sys.exit(f"ERROR:\n  Code: {error.code().name}\n  Message: {error.details()}")
    for answer in answers:
        told = message_factory.GetMessageClass(method.output_type).FromString(answer)
        print(json_format.MessageToJson(told, descriptor_pool=pool))


def described(
    channel: grpc.Channel, service: str, headers: list[tuple[str, str]]
) -> descriptor_pool.DescriptorPool:
    """The messages that the server says the service has."""
    stream = channel.stream_stream(REFLECTION)
    (answer,) = stream(iter([protobuf.field(4, service.encode())]), 60, headers)
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
