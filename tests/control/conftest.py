"""What tests of the control plane share: coroutines run on asyncio, stores in either database."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from control.publishing import Scene
from database import PostgresServer, postgres

Where = Path | str


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """The loop of tests and fixtures that are coroutines."""
    return "asyncio"


@pytest.fixture
async def scene(tmp_path: Path) -> Scene:
    """A control plane that publishes. Some files have a scene of another kind."""
    return await Scene(tmp_path).begin()


@pytest.fixture(scope="session")
def stopped() -> Iterator[PostgresServer]:
    """A PostgreSQL that some tests stop."""
    with postgres() as running:
        yield running


@pytest.fixture
def own(stopped: PostgresServer) -> Iterator[PostgresServer]:
    """A PostgreSQL that this test alone has, and may stop; its databases are of others, too."""
    stopped.ensure_running()
    yield stopped


@pytest.fixture(params=["sqlite", "postgres"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Where]:
    """Where an empty store can be kept, another one at each call."""
    if request.param == "postgres":
        made: PostgresServer = request.getfixturevalue("postgresql")
        return made.new_database
    numbers = iter(range(100))
    return lambda: tmp_path / f"{next(numbers)}.sqlite"


@pytest.fixture
def where(fresh: Callable[[], Where]) -> Where:
    """Where one empty store can be kept."""
    return fresh()
