"""Where Triton is told to look."""

import pytest

from serve.core.errors import CannotStart
from serve.triton.repository_url import triton_url


@pytest.mark.parametrize(
    ("storage", "environment", "url"),
    [
        ("s3://models/prod", {}, "s3://models/prod/repository"),
        ("s3://models", {}, "s3://models/repository"),
        ("s3://models/a/b/", {}, "s3://models/a/b/repository"),
        (
            "s3://models/prod",
            {"AWS_ENDPOINT_URL": "http://minio:9000"},
            "s3://http://minio:9000/models/prod/repository",
        ),
        (
            "s3://models",
            {"AWS_ENDPOINT_URL": "https://s3.example.org/"},
            "s3://https://s3.example.org:443/models/repository",
        ),
        (
            "s3://models",
            {"AWS_ENDPOINT_URL": "http://a:1", "AWS_ENDPOINT_URL_S3": "http://b:2"},
            "s3://http://b:2/models/repository",
        ),
        ("gs://models/prod", {}, "gs://models/prod/repository"),
        (
            "az://models/prod",
            {"AZURE_STORAGE_ACCOUNT_NAME": "acme"},
            "as://acme/models/prod/repository",
        ),
    ],
)
def test_the_repository_lies_below_the_storage(
    storage: str, environment: dict[str, str], url: str
) -> None:
    assert triton_url(storage, environment) == url


@pytest.mark.parametrize("storage", ["", "/srv/models", "az://models", "ftp://models"])
def test_what_is_no_bucket_for_triton_is_refused(storage: str) -> None:
    with pytest.raises(CannotStart, match="Triton cannot read"):
        triton_url(storage, {})
