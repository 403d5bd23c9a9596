"""The family of a condition: the condition with its run's own dates taken out.

So yesterday's and today's partition are one series, of which earlier landings say when it usually lands. A date in a
text becomes its distance from the run's: the name of the run's date that it is, or so many days or seconds.
"""

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

_FARTHEST = timedelta(days=400)  # a date that is farther from the run's is no date of the run
_PART = r"(?:[/_.&-]?[A-Za-z]{1,8}=)"  # of a path of partitions: /month=
_DATE = re.compile(
    rf"""(?<!\d)(?P<year>(?:19|20)\d\d)(?P<first>{_PART}|[-/_.]?)(?P<month>0[1-9]|1[0-2])
    (?:{_PART}|(?P=first))(?P<day>0[1-9]|[12]\d|3[01])
    (?:
        (?P<before_time>{_PART}|[T\ _/-]?)(?P<hour>[01]\d|2[0-3])
        (?:(?:{_PART}|[:_/-]?)(?P<minute>[0-5]\d)(?:[:_-]?(?P<second>[0-5]\d)(?P<fraction>[.,]\d{{1,9}})?)?)?
        (?P<zone>Z|[+-](?:0\d|1[0-4]):?[0-5]\d)?
    )?(?!\d)""",
    re.VERBOSE,
)
_MONTH = re.compile(r"(?<!\d)(?P<year>(?:19|20)\d\d)(?:[/_.&-]?[A-Za-z]{1,8}=|[-/_.]?)(?P<month>0[1-9]|1[0-2])(?!\d)")
_HOUR = re.compile(r"(?<![A-Za-z])(?P<before>(?:hour|hh|hr|h)=)(?P<hour>\d{1,2})(?!\d)", re.IGNORECASE)
_EPOCH = re.compile(r"(?<!\d)1\d{9}(?:\d{3})?(?!\d)")


def without_dates(poke_context: Mapping[str, Any], dates: Mapping[str, datetime]) -> str:
    """Return a context as canonical JSON, with the dates of its run taken out.

    :param poke_context: JSON values.
    :param dates: the run's own dates by name, aware; the first is the one from which others are counted.
    """
    return json.dumps(_Dates(dates).taken_out_of(poke_context), sort_keys=True)


class _Dates:
    """The dates of a run."""

    def __init__(self, dates: Mapping[str, datetime]) -> None:
        self._named = {name: when.astimezone(UTC) for name, when in dates.items()}
        self._first = next(iter(self._named.values()))
        self._epochs = {
            str(int(when.timestamp() * factor)): f"<{name}>"
            for name, when in reversed(self._named.items())
            for factor in (1, 1000)
        }

    def taken_out_of(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._of_text(value)
        if isinstance(value, Mapping):
            return {self._of_text(name): self.taken_out_of(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.taken_out_of(item) for item in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            return self._epochs.get(str(int(value)), value) if abs(value) < 1e15 else value
        return value

    def _of_text(self, text: str) -> str:
        if not any(character.isdigit() for character in text):
            return text
        text = _DATE.sub(self._of_date, text)
        text = _MONTH.sub(self._of_month, text)
        text = _HOUR.sub(self._of_hour, text)
        return _EPOCH.sub(lambda found: self._epochs.get(found[0], found[0]), text)

    def _of_date(self, found: re.Match[str]) -> str:
        try:
            day = date(int(found["year"]), int(found["month"]), int(found["day"]))
        except ValueError:  # the 31st of February
            return found[0]
        if found["hour"] is None:
            return self._of_day(day) or found[0]
        hour, minute, second = (int(found[part] or 0) for part in ("hour", "minute", "second"))
        when = datetime(day.year, day.month, day.day, hour, minute, second, tzinfo=_zone(found["zone"]))
        unit = next(part for part in ("second", "minute", "hour") if found[part] is not None)
        return self._of_moment(when.astimezone(UTC), unit) or found[0]

    def _of_month(self, found: re.Match[str]) -> str:
        for name, when in self._named.items():
            if (when.year, when.month) == (int(found["year"]), int(found["month"])):
                return f"<{name} month>"
        return found[0]

    def _of_hour(self, found: re.Match[str]) -> str:
        for name, when in self._named.items():
            if when.hour == int(found["hour"]):
                return f"{found['before']}<{name} hour>"
        return found[0]

    def _of_day(self, day: date) -> str | None:
        """Return what stands for a day; None if it is no day of the run."""
        for name, when in self._named.items():
            if when.date() == day:
                return f"<{name} day>"
        distance = day - self._first.date()
        return f"<{distance.days:+d} days>" if abs(distance) < _FARTHEST else None

    def _of_moment(self, moment: datetime, unit: str) -> str | None:
        """Return what stands for a moment that is spelt to a unit; None if it is no moment of the run."""
        for name, when in self._named.items():
            if _cut(when, unit) == moment:
                return f"<{name} {unit}>"
        distance = moment - _cut(self._first, unit)
        return f"<{distance.total_seconds():+.0f} s {unit}>" if abs(distance) < _FARTHEST else None


def _cut(when: datetime, unit: str) -> datetime:
    """Return a moment as a text has it that ends with a unit."""
    if unit == "hour":
        return when.replace(minute=0, second=0, microsecond=0)
    return when.replace(second=0, microsecond=0) if unit == "minute" else when.replace(microsecond=0)


def _zone(text: str | None) -> timezone:
    """Return the zone of a text; UTC if it has none."""
    if text is None or text == "Z":
        return UTC
    sign = -1 if text[0] == "-" else 1
    return timezone(sign * timedelta(hours=int(text[1:3]), minutes=int(text[-2:])))
