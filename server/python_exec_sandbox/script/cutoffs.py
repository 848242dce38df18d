"""Moments after which nothing may have been published, as uv writes them. Pure."""

import re
from datetime import UTC, datetime, timedelta

ACCEPTED = "2026-05-01, 2026-05-01T12:00:00Z, 7 days, P7D"

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d(\.\d{1,9})?)?(Z|[+-]\d\d:\d\d)", re.ASCII)
_AGO = re.compile(
    r"(?P<n>\d{1,4}) (?P<unit>hour|day|week)s?|P(?P<p>\d{1,4})(?P<d>[DW])|PT(?P<h>\d{1,4})H", re.ASCII
)


def moment(text: str, now: datetime) -> datetime | None:
    """When ``text`` is, a date or a time of day with its zone, or so long before ``now``; ``None`` if it is neither.

    A date means its end, as uv takes it.
    """
    if _DATE.fullmatch(text) or _TIME.fullmatch(text):
        try:
            found = datetime.fromisoformat(text)
            return found if found.tzinfo else found.replace(tzinfo=UTC) + timedelta(days=1)
        except (ValueError, OverflowError):  # such as the 31st of June
            return None
    match = _AGO.fullmatch(text)
    return now - _span(match) if match else None


def older(one: str, other: str, now: datetime) -> str:
    """Whichever leaves out more; that which is given, if only one is."""
    if not (one and other):
        return one or other
    first, second = moment(one, now), moment(other, now)
    # What only uv understands was set by the person, and is `one`.
    return other if first is not None and second is not None and second < first else one


def _span(match: re.Match[str]) -> timedelta:
    if match["h"]:
        return timedelta(hours=int(match["h"]))
    number = int(match["n"] or match["p"])
    match (match["unit"] or match["d"]).lower()[0]:
        case "h":
            return timedelta(hours=number)
        case "w":
            return timedelta(weeks=number)
    return timedelta(days=number)
