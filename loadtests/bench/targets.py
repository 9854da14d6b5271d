"""What is measured: a proxy (or nothing) in front of the upstream, by its ports and its process."""

import argparse
from collections.abc import Iterable
from dataclasses import dataclass

DIRECT, REFERENCE = "direct", "nginx"


@dataclass(frozen=True, slots=True)
class Target:
    """Where it answers (`http://host:port`), and the root of its process tree."""

    name: str
    http: str
    grpc: str
    pid: int | None = None  # None: its CPU time is not measured

    def url(self, protocol: str) -> str:
        """The one for "http" or "grpc"."""
        return self.grpc if protocol == "grpc" else self.http


def pair(text: str) -> tuple[str, str]:
    """`name=value`, as `--target` and `--pid` take it."""
    name, equals, value = text.partition("=")
    if not (name and equals and value):
        raise argparse.ArgumentTypeError(f"'{text}' is not name=value")
    return name, value


def given(urls: Iterable[tuple[str, str]], pids: Iterable[tuple[str, str]]) -> tuple[Target, ...]:
    """Targets that run already; a pid for a name without a URL raises ValueError."""
    roots = {name: int(pid) for name, pid in pids}
    targets = tuple(
        Target(name, url.rstrip("/"), url.rstrip("/"), roots.pop(name, None)) for name, url in urls
    )
    if roots:
        raise ValueError(f"--pid names no target; allowed: {', '.join(roots)}")
    return targets
