"""Handshakes that fail: what is counted, and how often it is told."""

import logging
import ssl

import pytest
from builders import Clock

from serve.app.tls_failures import Failures, failure


def error(reason: str) -> ssl.SSLError:
    found = ssl.SSLError(1, reason)
    found.reason = reason
    return found


def test_a_storm_is_one_line_in_a_second_which_says_how_many_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "servegate")
    clock = Clock()
    failures = Failures(clock)
    for _ in range(20):
        failures.note("http", error("HTTP_REQUEST"))
        clock.now += 0.125
    assert len(caplog.messages) == 3
    assert caplog.messages[1].endswith("(and 7 more since the last line)")
    (family,) = failures.collect()
    assert [sample.value for sample in family.samples] == [20]


def test_kinds_and_listeners_do_not_silence_each_other(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "servegate")
    failures = Failures(Clock())
    for listener in ("http", "grpc"):
        for reason in ("HTTP_REQUEST", "TLSV1_ALERT_UNKNOWN_CA", "NO_SHARED_CIPHER"):
            failures.note(listener, error(reason))
    assert len(caplog.messages) == 6


def test_a_reason_that_nobody_foresaw_is_told_in_openssls_words() -> None:
    found = failure(error("BAD_EXTENSION"))
    assert (found.kind, found.sentence) == ("other", "a TLS handshake failed: bad extension")
