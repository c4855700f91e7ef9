"""When a session is tried again, and what its error means for others."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import format_datetime

import pytest

from penstock.sessions.error_states import ErrorStates
from penstock.sessions.retry_after import LONGEST, retry_after
from penstock.sessions.retry_schedule import RetrySchedule

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp()
PLAIN = RetrySchedule(jitter=0.0)


def test_pauses_grow_up_to_the_longest() -> None:
    pauses = [PLAIN.pause(failures, lambda: 0.5) for failures in range(1, 8)]
    assert pauses == [5.0, 7.5, 11.25, 16.875, 25.3125, 30.0, 30.0]


@pytest.mark.parametrize(("share", "pause"), [(0.0, 2.5), (0.5, 5.0), (1.0, 7.5)])
def test_a_pause_is_shorter_or_longer_by_half(share: float, pause: float) -> None:
    assert RetrySchedule().pause(1, lambda: share) == pause


def test_the_number_of_failures_may_be_large() -> None:
    assert PLAIN.pause(10**9, lambda: 0.5) == 30.0


@pytest.mark.parametrize(("seconds", "over"), [(0.0, False), (299.9, False), (300.0, True), (1e9, True)])
def test_a_request_is_given_up_after_its_time(seconds: float, over: bool) -> None:
    assert RetrySchedule().is_over(seconds) is over


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None), ("", None), ("soon", None), ("-1", None), ("1.5", None), ("٣", None),
        ("0", 0.0), ("3", 3.0), (" 3 ", 3.0), ("120", 120.0), ("99999999999999999999", LONGEST),
        (format_datetime(datetime.fromtimestamp(NOW + 30, UTC), usegmt=True), 30.0),
        (format_datetime(datetime.fromtimestamp(NOW - 30, UTC), usegmt=True), 0.0),
        ("Fri, 02 Jan 2026 03:04:35 -0000", 30.0),
        ("Fri, 02 Jan 2026 04:04:35 +0100", 30.0),
        ("Fri, 02 Jan 9999 04:04:35 GMT", LONGEST),
        ("Fri, 99 Jan 2026 04:04:35 GMT", None),
    ],
)  # fmt: skip
def test_a_server_says_when_to_come_back(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, NOW) == seconds


def states(timeout: float | None = None) -> ErrorStates:
    return ErrorStates(PLAIN, lambda: 0.5, timeout)


def test_a_session_in_error_is_left_alone_and_others_are_not() -> None:
    errors = states()
    assert errors.note_failure("a", "503", 100.0, 503) == 5.0
    assert (errors.seconds_left("a", 102.0), errors.seconds_left("a", 105.0), errors.seconds_left("b", 100.0)) == (
        3,
        0,
        0,
    )


def test_each_failure_makes_the_pause_longer_and_a_success_begins_anew() -> None:
    errors = states()
    assert [errors.note_failure("a", "503", now) for now in (0.0, 10.0, 20.0)] == [5.0, 7.5, 11.25]
    errors.note_success("a", 40.0)
    assert errors.note_failure("a", "503", 50.0) == 5.0


def test_one_sessions_success_does_not_clear_anothers_error() -> None:
    errors = states()
    errors.note_failure("a", "503", 0.0)
    errors.note_failure("b", "503", 0.0)
    errors.note_success("b", 1.0)
    assert set(errors.failing(1.0)) == {"a"}
    assert errors.seconds_left("a", 1.0) == 4.0


def test_retry_after_is_obeyed_by_its_session() -> None:
    errors = states()
    assert errors.note_failure("a", "429", 0.0, 429, 3.0) == 3.0
    assert errors.seconds_left("a", 2.9) > 0
    assert errors.seconds_left("a", 3.0) == 0
    assert errors.note_failure("a", "429", 3.0, 429, 60.0) == 60.0


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_on_several_sessions_is_obeyed_by_all(status: int) -> None:
    errors = states()
    for number in range(3):
        errors.note_failure(f"s{number}", "busy", 0.0, status, 3.0 + number)
    assert errors.seconds_left("other", 0.0) == 5.0
    assert errors.seconds_left("other", 5.0) == 0


def test_two_sessions_are_not_several() -> None:
    errors = states()
    for number in range(2):
        errors.note_failure(f"s{number}", "busy", 0.0, 429, 3.0)
    assert errors.seconds_left("other", 0.0) == 0


@pytest.mark.parametrize(("status", "wait"), [(500, 3.0), (401, 3.0), (503, None), (429, None)])
def test_only_a_server_that_asks_for_a_pause_gets_one_from_all(status: int, wait: float | None) -> None:
    errors = states()
    for number in range(9):
        errors.note_failure(f"s{number}", "busy", 0.0, status, wait)
    assert errors.seconds_left("other", 0.0) == 0


def test_a_server_that_accepts_others_is_not_busy() -> None:
    errors = states()
    errors.note_failure("a", "busy", 0.0, 503, 9.0)
    errors.note_failure("b", "busy", 0.0, 503, 9.0)
    errors.note_success("other", 1.0)
    errors.note_failure("c", "busy", 2.0, 503, 9.0)
    assert errors.seconds_left("other", 2.0) == 0
    assert errors.seconds_left("a", 2.0) == 7.0


def test_a_success_ends_the_pause_of_all() -> None:
    errors = states()
    for number in range(3):
        errors.note_failure(f"s{number}", "busy", 0.0, 429, 60.0)
    errors.note_success("late", 1.0)
    assert errors.seconds_left("other", 1.0) == 0
    assert errors.seconds_left("s0", 1.0) == 59.0


def test_an_error_that_is_not_repeated_is_over_some_time() -> None:
    errors = states(timeout=10.0)
    errors.note_failure("a", "503", 0.0)
    assert set(errors.failing(9.9)) == {"a"}
    assert not errors.failing(10.0)


def test_what_failed_for_too_long_is_over_and_patience_begins_anew_with_the_next() -> None:
    errors = states()
    errors.note_failure("a", "503", 0.0)
    assert not errors.is_over("a", 299.0)
    assert errors.is_over("a", 300.0)
    assert not errors.is_over("b", 300.0)
    errors.forget("a")
    errors.note_failure("a", "503", 301.0)
    assert not errors.is_over("a", 301.0)
    assert errors.reason("a") == "503"
