"""Where Triton is told to look."""

from refusals import refusal

from serve.core.errors import CannotStart
from serve.triton.repository_url import triton_url


def test_the_repository_lies_below_the_storage() -> None:
    for storage, environment, url in (
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
    ):
        assert triton_url(storage, environment) == url, (storage, environment)


def test_what_is_no_bucket_for_triton_is_refused() -> None:
    for storage in ("", "/srv/models", "az://models", "ftp://models"):
        assert "Triton cannot read" in str(refusal(CannotStart, triton_url, storage, {})), storage
