"""What the parent asks its control plane, against one whose answers are scripted."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from app.scripted import Scripted, answer
from builders import replica

from serve.app.paths import control_socket
from serve.app.up import ControlLine
from serve.settings import Settings

PATIENCE = 10.0  # seconds; a bound


def body(of: Any) -> bytes:
    return answer(json.dumps(of).encode())


def play(
    folder: Path, scenario: Callable[[ControlLine], Coroutine[Any, Any, Any]], *answers: bytes
) -> tuple[Any, list[str]]:
    """What came of it, and the first lines of what was asked."""
    settings = Settings(state=str(folder), secret="a-shared-secret-of-tests")

    async def scene() -> tuple[Any, list[str]]:
        server = Scripted(*answers)
        await server.listen(control_socket(settings))
        line = ControlLine(settings)
        try:
            async with asyncio.timeout(PATIENCE):
                got = await scenario(line)
        finally:
            line.close()
        assert all("authorization: Bearer a-shared-secret-of-tests" in it for it in server.heads)
        return got, server.asked

    return asyncio.run(scene())


def test_a_round_of_hints_is_waited_for_as_long_as_it_takes(tmp_path: Path) -> None:
    old, new = {"number": 7, "hints": []}, {"number": 8, "hints": [{"pool": "default"}]}
    got, asked = play(tmp_path, lambda line: line.hints(7), body(old), body(new))
    assert got == (8, [{"pool": "default"}])
    assert asked == ["GET /api/hints?after=7"] * 2


def test_the_whole_list_is_told_and_who_still_has_calls_comes_back(tmp_path: Path) -> None:
    got, asked = play(
        tmp_path,
        lambda line: line.become([replica("a")], {"default": 1}, leaving=["b", "c"], within=5.0),
        body({"leaving": {"b": 2.0, "c": None}}),
    )
    assert (got, asked) == ({"b": 2.0, "c": None}, ["PUT /internal/replicas"])


@pytest.mark.parametrize(
    "said",
    [
        answer(b'{"error": "this control plane stands by"}', "503 Service Unavailable"),
        body(["what"]),
        answer(),
        b"",
    ],
)
def test_what_makes_no_sense_is_as_good_as_no_answer(tmp_path: Path, said: bytes) -> None:
    for ask in (
        lambda line: line.hints(0),
        lambda line: line.become([], {}, leaving=[], within=0.0),
    ):
        with pytest.raises(OSError, match=r".*"):
            play(tmp_path, ask, said)
