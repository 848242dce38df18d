from datetime import UTC, datetime, timedelta

import pytest

from python_exec_sandbox.script.cutoffs import moment, older

NOW = datetime(2026, 5, 10, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("2026-05-01", datetime(2026, 5, 2, tzinfo=UTC)),
        ("2026-05-01T12:30:00Z", datetime(2026, 5, 1, 12, 30, tzinfo=UTC)),
        ("2026-05-01T12:30+02:00", datetime(2026, 5, 1, 10, 30, tzinfo=UTC)),
        ("7 days", NOW - timedelta(days=7)),
        ("1 day", NOW - timedelta(days=1)),
        ("24 hours", NOW - timedelta(days=1)),
        ("2 weeks", NOW - timedelta(weeks=2)),
        ("P7D", NOW - timedelta(days=7)),
        ("P2W", NOW - timedelta(weeks=2)),
        ("PT36H", NOW - timedelta(hours=36)),
    ],
)
def test_dates_times_and_spans_are_understood(text: str, when: datetime) -> None:
    assert moment(text, NOW) == when


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-06-31",
        "2026-05-01T12:00",
        "9999-12-31",
        "7",
        "7 years",
        "P7",
        "99999 days",
        "7 days\n",
    ],
)
def test_anything_else_is_no_moment(text: str) -> None:
    assert moment(text, NOW) is None


@pytest.mark.parametrize(
    ("one", "other", "chosen"),
    [
        ("", "", ""),
        ("2026-05-01", "", "2026-05-01"),
        ("", "7 days", "7 days"),
        ("2026-05-01", "2020-01-01", "2020-01-01"),
        ("2020-01-01", "7 days", "2020-01-01"),
        ("1 day", "7 days", "7 days"),
        ("what only uv knows", "2020-01-01", "what only uv knows"),
    ],
)
def test_the_older_of_two_counts(one: str, other: str, chosen: str) -> None:
    assert older(one, other, NOW) == chosen
