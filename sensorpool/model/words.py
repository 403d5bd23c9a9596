"""Numbers with their nouns, times, and names that were most likely meant, as text for people."""

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches

from sensorpool.model.values import Milliseconds

LATEST = 253_402_300_799_999  # milliseconds: the end of the year 9999, the last one of `datetime`
_SPANS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def counted(number: int, noun: str, plural: str = "s") -> str:
    """Return a number with its noun: ``1 group``, ``1,200 groups``.

    :param plural: the ending of the noun for other numbers than one.
    """
    return f"{number:,} {noun}{'' if number == 1 else plural}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the name that an unknown one was most likely meant to be, in brackets; empty if none is near."""
    return _asked(get_close_matches(name, list(known), n=1, cutoff=0.7))


def nearest_class(path: str, known: Iterable[str]) -> str:
    """Return the class path that an unknown one was most likely meant to be, by the name of the class.

    Paths have long beginnings in common, so that whole paths would always be near.
    """
    names = {each.rpartition(".")[2].casefold(): each for each in sorted(known)}
    return _asked([names[each] for each in get_close_matches(path.rpartition(".")[2].casefold(), names, 1, 0.85)])


def _asked(matches: list[str]) -> str:
    return f" (did you mean {matches[0]}?)" if matches else ""


def spell_time(at: Milliseconds | None) -> str | None:
    """Return a time as ISO 8601 in UTC; a time outside of the calendar (an edited row) as its number; None as None."""
    if at is None:
        return None
    if not 0 <= at <= LATEST:
        return f"{at} ms"
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(text: str | None, now: datetime) -> str:
    """Return a time with its distance from now; as it stands, if it is none (an edited row)."""
    seconds = seconds_since(text, now)
    if text is None or seconds is None:
        return str(text)
    spelt = f"{text[:10]} {text[11:19]} UTC"
    return f"{spelt} ({spell_span(seconds)} ago)" if seconds >= 0 else f"{spelt} (in {spell_span(-seconds)})"


def ago(text: str | None, now: datetime) -> str:
    """Return a time as its distance from now; as it stands, if it is none (an edited row); nothing for None."""
    seconds = seconds_since(text, now)
    if seconds is None:
        return text or ""
    return f"{spell_span(seconds)} ago" if seconds >= 0 else f"in {spell_span(-seconds)}"


def between(begin: str | None, end: str | None) -> str:
    """Return the span between two times in words."""
    seconds = seconds_since(begin, datetime.fromisoformat(end)) if end is not None and _is_time(end) else None
    return "a time that is not known" if seconds is None else spell_span(max(0.0, seconds))


def seconds_since(text: str | None, now: datetime) -> float | None:
    """Return the seconds from a time until now; None if it is no time."""
    return (now - datetime.fromisoformat(text)).total_seconds() if text is not None and _is_time(text) else None


def spell_span(seconds: float) -> str:
    """Return a span in its two largest units."""
    left, parts = round(seconds), list[str]()
    for size, unit in _SPANS:
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def _is_time(text: str) -> bool:
    return text.endswith("Z")
