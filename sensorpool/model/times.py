"""Times as people read them."""

from datetime import UTC, datetime

from sensorpool.model.values import Milliseconds

LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999, the last that a calendar has


def spell_time(at: Milliseconds | None) -> str | None:
    """Spell a time for people: ISO 8601, UTC. One that no calendar has, of a row written over, as its number."""
    if at is None:
        return None
    if not 0 <= at <= LATEST:
        return f"{at} ms"
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
