"""What load tests call: a small model server, and a Triton with a gateway in front of it."""

from collections.abc import Iterator

import pytest
from model_server import ModelServer

from ...triton.conftest import Beside, bare_triton_factory, beside

__all__ = ["Beside", "bare_triton_factory", "beside"]


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server
