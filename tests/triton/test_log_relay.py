"""What Triton prints, and what becomes of it."""

import logging

from serve.triton.log_relay import LogLine, LogRelay, parse


class Kept(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_a_line_is_read_into_level_text_and_source() -> None:
    for line, parsed in (
        (
            'I1121 02:59:05.458237 7229 model_lifecycle.cc:472] "loading: a:1"',
            LogLine(logging.INFO, "loading: a:1", "model_lifecycle.cc:472"),
        ),
        (
            r'W1121 02:59:07.343641 7229 model.py:6] "say \"hi\"\nback\\slash \u0001 ü"',
            LogLine(logging.WARNING, 'say "hi"\nback\\slash \u0001 ü', "model.py:6"),
        ),
        (
            "E1121 03:05:02.919227182   12958 chttp2_server.cc:1060]                UNKNOWN:No",
            LogLine(logging.ERROR, "UNKNOWN:No", "chttp2_server.cc:1060"),
        ),
        (
            "I1121 03:04:48.806605 12778 pb_stub.cc:2145]  Non-graceful termination detected. ",
            LogLine(logging.INFO, "Non-graceful termination detected.", "pb_stub.cc:2145"),
        ),
        (
            'F1121 03:04:48.806605 1 file.cc:1] "not closed',
            LogLine(logging.CRITICAL, '"not closed', "file.cc:1"),
        ),
        ("hello from a model", LogLine(logging.INFO, "hello from a model")),
        ("I1121 is not a log line", LogLine(logging.INFO, "I1121 is not a log line")),
    ):
        assert parse(line) == parsed, line


def test_what_helps_nobody_is_for_debugging_only() -> None:
    for line in (
        'E1127 18:00:00.000000 7229 server.cc:345] "Exit timeout expired. Exiting immediately."',
        "",
        "+-------+---------+",
        "| Model | Version |",
        "I1121 02:59:07.353323 7229 server.cc:604] ",
        'E1121 02:59:05.456483 7229 server.cc:241] "CudaDriverHelper has not been initialized."',
        "Error: Failed to initialize NVML",
    ):
        assert parse(line).level == logging.DEBUG, line


def test_a_record_carries_replica_and_source() -> None:
    logger, kept = logging.Logger("servegate.triton"), Kept()
    logger.addHandler(kept)
    LogRelay("local-1", logger)('W1121 02:59:07.3 7 model.py:6] "100% sure"')
    (record,) = kept.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "100% sure")
    assert (vars(record)["replica"], vars(record)["source"]) == ("local-1", "model.py:6")


def test_the_last_lines_are_those_of_the_present_life() -> None:
    log = LogRelay("local-0", logging.Logger("servegate.triton"))
    log("an earlier life")
    log.begin()
    for number in range(20):
        log(f"line {number}")
        log("+-------+")
    for frame in range(30):
        log(f"{frame:2}# 0x00007FDFA59909D5 in /opt/tritonserver/lib/libtritonserver.so")
    assert log.last_lines == tuple(f"line {number}" for number in range(12, 20))
    log.begin()
    for line in ("unrecognized option", "Usage: tritonserver [options]", "  --help"):
        log(line)
    assert log.last_lines == ("unrecognized option",)  # help does not bury the reason
