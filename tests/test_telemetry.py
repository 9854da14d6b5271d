"""The log as lines for people or programs."""

import json
import logging
import sys

from serve.telemetry import JsonFormatter, TextFormatter


def record(message: str = "größe %s", *, replica: str | None = None) -> logging.LogRecord:
    made = logging.LogRecord("servegate.x", logging.WARNING, "x.py", 1, message, ("ü",), None)
    if replica is not None:
        made.replica = replica
    return made


def failed() -> logging.LogRecord:
    made = record()
    try:
        raise ValueError("broken")
    except ValueError:
        made.exc_info = sys.exc_info()
    return made


def test_a_line_for_programs_is_one_json_object() -> None:
    line = JsonFormatter().format(record(replica="local-0"))
    item = json.loads(line)
    assert "\n" not in line
    assert (item["level"], item["logger"], item["message"], item["replica"]) == (
        "warning",
        "servegate.x",
        "größe ü",
        "local-0",
    )


def test_a_traceback_stays_inside_the_json_object() -> None:
    line = JsonFormatter().format(failed())
    assert "\n" not in line
    assert "ValueError: broken" in json.loads(line)["exception"]


def test_a_line_for_people_names_level_logger_and_replica() -> None:
    line = TextFormatter().format(record(replica="local-0"))
    assert line.endswith(" warning servegate.x[local-0]: größe ü")
    assert TextFormatter().format(record()).endswith(" warning servegate.x: größe ü")


def test_a_traceback_for_people_follows_its_line() -> None:
    first, *rest = TextFormatter().format(failed()).splitlines()
    assert first.endswith("größe ü")
    assert rest[-1] == "ValueError: broken"
