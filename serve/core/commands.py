"""Command lines that are shown to people: with the addresses that they need.

A command finds its server by itself only in the gateway's folder, or where the ports are the
defaults. So a page or a report adds every address that is not a default.
"""

import shlex

ADMIN, HTTP, GRPC, METRICS = (f"http://127.0.0.1:{port}" for port in (8080, 8000, 8001, 8002))
_FLAGS = (
    ("--url", HTTP),
    ("--grpc-url", GRPC),
    ("--metrics-url", METRICS),
    ("--admin-url", ADMIN),
)


def addressed(
    command: str, *, http: str = "", grpc: str = "", metrics: str = "", admin: str = ""
) -> str:
    """The command with a flag for each of these URLs that is not the default.

    `addressed("servegate model ls", admin="http://127.0.0.1:25080/")` ends in
    `--admin-url http://127.0.0.1:25080`.
    """
    words = [command]
    for (flag, default), url in zip(_FLAGS, (http, grpc, metrics, admin), strict=True):
        url = url.rstrip("/")
        full = url if "://" in url else f"http://{url}"
        if url and full.replace("//localhost:", "//127.0.0.1:") != default:
            words += [flag, shlex.quote(url)]
    return " ".join(words)
