"""Days of a time zone, which have 23 to 25 hours where clocks are changed: their bounds in milliseconds since 1970."""

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from streamtable.errors import GraphError

DAYS_MAX = 366
_FIRST = date(1970, 1, 5).toordinal()  # a Monday, so that seven days are a week from Monday on
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MS = 86_400_000
_REMEMBERED = 4096
_CYCLE_DAYS = 146_097  # 400 years: dates, weekdays and with them the rules of zones come again
# `datetime` ends with the year 9999; a window may not, nor do bytes that are no time.
_LAST = date(9990, 1, 1).toordinal()


class ZoneDays:
    """Periods of whole days of a time zone, side by side. A day begins at the first instant of its midnight.

    Where midnight is skipped as clocks go forward, the day begins at the change; where clocks go back over midnight, it
    begins when midnight is there for the first time. So do the days of Java's `LocalDate.atStartOfDay`.

    Args:
        days: The number of days of a period, counted from Monday, 5 January 1970.
        zone: The name of the time zone, such as "Europe/Berlin".

    Raises:
        GraphError: The number is not from 1 to 366, or the zone is not known.
    """

    def __init__(self, days: object, zone: object) -> None:
        if type(days) is not int or not 1 <= days <= DAYS_MAX:
            raise GraphError(f"windows of days={days!r}: give a whole number from 1 to {DAYS_MAX}")
        if not isinstance(zone, str) or not zone:
            raise GraphError(
                f"windows of days with zone={zone!r}: give the name of the time zone of the days, such as 'Europe/Berlin' or 'UTC'"
            )
        try:
            self._zone = ZoneInfo(zone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise GraphError(
                f"windows of days with zone={zone!r}, which is not in the time zone database: give a name such as "
                "'Europe/Berlin'. Where the operating system has no such database, install the package tzdata"
            ) from error
        self.days = days
        self.zone = zone
        self._period = lru_cache(_REMEMBERED)(self._find_period)

    @property
    def longest_ms(self) -> int:
        """The milliseconds that a period has at most: clocks may be changed by a day where the date line is moved."""
        return (self.days + 1) * _DAY_MS

    def end_of(self, time_ms: int) -> int:
        """Return the end of the period at a time, which is the start of the next one."""
        return self._at(time_ms)[1]

    def starts_of(self, times: Sequence[int]) -> list[int]:
        """Return the start of the period at each of these times."""
        start = end = 0
        found = []
        for time in times:
            if not start <= time < end:  # mostly it is the same period
                start, end = self._at(time)
            found.append(start)
        return found

    def _at(self, time_ms: int) -> tuple[int, int]:
        number = (time_ms // _DAY_MS + _EPOCH - _FIRST) // self.days  # right but for the distance to UTC
        start, end = self._period(number)
        while time_ms < start:
            number -= 1
            start, end = self._period(number)
        while time_ms >= end:  # also over a day that a zone has skipped
            number += 1
            start, end = self._period(number)
        return start, end

    def _find_period(self, number: int) -> tuple[int, int]:
        first = _FIRST + number * self.days
        return self._midnight(first), self._midnight(first + self.days)

    def _midnight(self, ordinal: int) -> int:
        """Return the instant when a date begins."""
        cycles = 0 if 0 < ordinal < _LAST else (ordinal - _LAST) // _CYCLE_DAYS + 1
        day = datetime.fromordinal(ordinal - cycles * _CYCLE_DAYS)
        before, after = (
            day.replace(tzinfo=self._zone, fold=fold).utcoffset() or timedelta(0) for fold in (0, 1)
        )
        seconds = (ordinal - _EPOCH) * 86_400
        # Clocks go forward over midnight: the first of them is after the change, the second before it.
        if before < after:
            begin = self._change(day, before, after) + cycles * _CYCLE_DAYS * 86_400
        else:
            begin = seconds - int(before.total_seconds())
        return begin * 1000

    def _change(self, day: datetime, before: timedelta, after: timedelta) -> int:
        """Return the second when clocks go forward over this midnight."""
        utc = day.replace(tzinfo=UTC)
        early, late = int((utc - after).timestamp()), int((utc - before).timestamp())
        while late - early > 1:
            middle = (early + late) // 2
            changed = datetime.fromtimestamp(middle, self._zone).utcoffset() == after
            early, late = (early, middle) if changed else (middle, late)
        return late
