"""Repository URLs: how Triton is told of a model repository in a bucket.

| storage                 | Triton                                              |
|-------------------------|-----------------------------------------------------|
| `s3://bucket/prefix`    | `s3://bucket/prefix/repository`                     |
| the same, with endpoint | `s3://http://host:port/bucket/prefix/repository`    |
| `gs://bucket/prefix`    | `gs://bucket/prefix/repository`                     |
| `az://container/prefix` | `as://account/container/prefix/repository`          |

See Triton's user guide, "model repository", on cloud storage. Credentials are in its environment.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from serve.core.errors import CannotStart

REPOSITORY = "repository"  # the folder below the storage's prefix
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_ACCOUNTS = ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")


def triton_url(storage: str, environment: Mapping[str, str] = os.environ) -> str:
    """The repository that is delivered into this storage; `CannotStart` when it is no bucket."""
    parts = urlsplit(storage)
    below = "/".join(filter(None, (parts.netloc, parts.path.strip("/"), REPOSITORY)))
    match parts.scheme:
        case "s3":
            endpoint = _first(environment, _ENDPOINTS)
            return f"s3://{_with_port(endpoint)}/{below}" if endpoint else f"s3://{below}"
        case "gs":
            return f"gs://{below}"
        case "az":
            account = _first(environment, _ACCOUNTS)
            if account:
                return f"as://{account}/{below}"
            raise CannotStart(f"Triton cannot read {storage}", why=f"{_ACCOUNTS[0]} is not set")
    raise CannotStart(
        f"Triton cannot read {storage or 'the storage'} as a bucket",
        why="delivery is `bucket`, which needs s3://, gs:// or az://",
        try_this="use --storage s3://BUCKET/PREFIX, or delivery `folder`",
    )


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environment[name] for name in names if environment.get(name)), "").rstrip("/")


def _with_port(endpoint: str) -> str:
    """Triton takes what has no port for the name of a bucket."""
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{parts.scheme}://{parts.hostname}:{port}"
