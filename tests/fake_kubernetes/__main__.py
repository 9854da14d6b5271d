"""Run a fake Kubernetes API until it is interrupted.

PYTHONPATH=tests python -m fake_kubernetes --port 8001
kubectl --server http://127.0.0.1:8001 get namespaces
"""

import argparse
import asyncio
import contextlib

from fake_kubernetes import FakeApi


async def serve(port: int, token: str) -> None:
    async with FakeApi(port=port, token=token) as api:
        print(f"a fake Kubernetes API at {api.url}", flush=True)
        await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="fake_kubernetes", description="A fake Kubernetes API")
    parser.add_argument("--port", type=int, default=8001, help="0: one that is free")
    parser.add_argument("--token", default="", help="the bearer token that has to be shown")
    asked = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(serve(asked.port, asked.token))


if __name__ == "__main__":
    main()
