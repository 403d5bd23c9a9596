"""Times as text for people."""

from datetime import UTC, datetime

from sensorpool.model.values import Milliseconds

LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999, the last one of `datetime`


def spell_time(at: Milliseconds | None) -> str | None:
    """Return a time as ISO 8601 in UTC; a time outside of the calendar (an edited row) as its number; None as None."""
    if at is None:
        return None
    if not 0 <= at <= LATEST:
        return f"{at} ms"
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
