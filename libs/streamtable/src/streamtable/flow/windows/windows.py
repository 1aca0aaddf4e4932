"""Windows as pure functions: which windows a record belongs to, when a window closes.

All times are milliseconds since 1970. The windows are defined as in Kafka Streams, except around 1970: events are
not earlier, but a window may begin before 1970 and hold the first events.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from functools import cached_property, lru_cache
from itertools import chain, pairwise, repeat
from typing import ClassVar, NamedTuple, TypeVar

from streamtable.base.ports import Codec
from streamtable.errors import GraphError
from streamtable.flow.checks import check_duration
from streamtable.flow.windows.keys import END_START, START, DayWindowKey, SessionKey, Windowed, WindowedKey
from streamtable.flow.windows.zone_days import ZoneDays

K = TypeVar("K")

_MS = timedelta(milliseconds=1)
_REMEMBERED = 1024
HOPS_MAX = 10_000
"""The maximum number of hopping windows of a record: a batch holds as many of these for each of its records."""


class Assigned(NamedTuple):
    """The windows of some records: the record with index `indexes[i]` belongs to the window that starts at `starts[i]`.

    `indexes` is None if each record belongs to exactly one window.
    """

    indexes: Sequence[int] | None
    starts: Sequence[int]


@dataclass(frozen=True)
class Window(ABC):
    """A kind of window.

    Args:
        grace: The time that late records are accepted: a window closes when event time has reached its end plus the grace.
            There is no default, since it decides which records count.

    Attributes:
        inclusive: Whether the end of a window belongs to it.
    """

    _: KW_ONLY
    grace: timedelta
    inclusive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._check("grace", self.grace, least=timedelta(0))

    def _check(self, name: str, value: object, *, least: timedelta) -> None:
        check_duration(value, f"{type(self).__name__} has {name}", least)

    @property
    def grace_ms(self) -> int:
        return self.grace // _MS

    @property
    @abstractmethod
    def meaning(self) -> str:
        """The meaning of the rows of such windows, with the time when they close. It is recorded with the table."""

    @property
    def _closing(self) -> str:
        return f"with a grace of {self.grace_ms} ms"

    @abstractmethod
    def key(self, inner: Codec[K]) -> Codec[Windowed[K]]:
        """Return the codec of the keys of a table with such windows."""

    @abstractmethod
    def closes_at(self, start: int, end: int) -> int:
        """Return the event time when a window closes: from then on no record is added to it."""

    @abstractmethod
    def closing(self) -> Callable[[bytes, bytes], int | None]:
        """Return the function that gives the closing time of the window of an encoded key; it takes the row too, and ignores it.

        It returns None for a key that has no window: a table is loaded before it is compared with what it meant when it was
        written.
        """

    def closings(self) -> Callable[[Sequence[bytes]], Sequence[int | None]]:
        """Return the function that gives the closing times of the windows of encoded keys, as `closing` does for one key."""
        when = self.closing()
        return lambda keys: [when(key, b"") for key in keys]


@dataclass(frozen=True)
class StartWindow(Window):
    """Windows whose end follows from their start, which alone is written behind the key."""

    @abstractmethod
    def end_of(self, start: int) -> int:
        """Return the end of the window that begins at this time."""

    def closing(self) -> Callable[[bytes, bytes], int | None]:
        def closes(start: bytes) -> int | None:
            if len(start) != START.size:
                return None
            (time,) = START.unpack(start)
            return self.closes_at(time, self.end_of(time))

        # Few windows are open at a time, and each row asks, so the answers are cached.
        closing_of = lru_cache(_REMEMBERED)(closes)
        return lambda key, _: closing_of(key[-START.size :])


@dataclass(frozen=True)
class SizedWindow(StartWindow):
    """Windows of one size."""

    @property
    @abstractmethod
    def size_ms(self) -> int:
        """The milliseconds from the start of a window to its end."""

    def key(self, inner: Codec[K]) -> Codec[Windowed[K]]:
        return WindowedKey(inner, self.size_ms, inclusive=self.inclusive)

    def end_of(self, start: int) -> int:
        return start + self.size_ms


@dataclass(frozen=True)
class TimeWindow(StartWindow):
    """Windows that are where they are whatever records there are, [start, end)."""

    inclusive: ClassVar[bool] = False

    @abstractmethod
    def assign(self, times: Sequence[int]) -> Assigned:
        """Return the windows of records at these times, record by record, in the order of the windows' starts."""

    def closes_at(self, start: int, end: int) -> int:  # noqa: ARG002 - the end alone decides
        return end + self.grace_ms


@dataclass(frozen=True)
class Tumbling(SizedWindow, TimeWindow):
    """Windows that follow each other without gaps: each record belongs to exactly one.

    They have a size, `Tumbling(timedelta(minutes=1), grace=...)`, and are aligned to 1970; or they are days of a time zone,
    `Tumbling(days=1, zone="Europe/Berlin", grace=...)`, from midnight to midnight: of 23 hours where clocks go forward, and
    of 25 where they go back.

    Args:
        size: The length of a window.
        days: In place of a size the number of days, from 1 to 366, counted from Monday, 5 January 1970: 7 are weeks from
            Monday on.
        zone: The name of the time zone of the days, as in the time zone database.
        grace: The time that late records are accepted after the end of a window.
    """

    size: timedelta | None = None
    _: KW_ONLY
    days: int | None = None
    zone: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.days is None and self.zone is None:
            self._check("size", self.size, least=_MS)
        elif self.size is not None:
            raise GraphError(
                f"Tumbling has size={self.size!r} and also days={self.days!r} or zone={self.zone!r}: give a size, or days and their zone"
            )
        else:
            _ = self._zone_days

    @cached_property
    def _zone_days(self) -> ZoneDays | None:
        return ZoneDays(self.days, self.zone) if self.size is None else None

    @property
    def size_ms(self) -> int:
        """The milliseconds from the start of a window to its end. Raises `GraphError` for days, which differ in length."""
        if self.size is None:
            raise GraphError(f"windows of days in {self.zone} have no size: they differ in length")
        return self.size // _MS

    @property
    def meaning(self) -> str:
        if self.size is None:
            return f"tumbling windows of {self.days} days in {self.zone}, {self._closing}"
        return f"tumbling windows of {self.size_ms} ms, {self._closing}"

    def key(self, inner: Codec[K]) -> Codec[Windowed[K]]:
        if (days := self._zone_days) is not None:
            return DayWindowKey(inner, days.days, days.zone)
        return super().key(inner)

    def end_of(self, start: int) -> int:
        return super().end_of(start) if self._zone_days is None else self._zone_days.end_of(start)

    def assign(self, times: Sequence[int]) -> Assigned:
        if not times:
            return Assigned(None, [])
        if self._zone_days is not None:
            return Assigned(None, self._zone_days.starts_of(times))
        size = self.size_ms
        first = min(times) // size
        if max(times) // size == first:  # mostly so in live streams
            return Assigned(None, [first * size] * len(times))
        return Assigned(None, [time - time % size for time in times])


@dataclass(frozen=True)
class Hopping(SizedWindow, TimeWindow):
    """Windows of the same length that begin at regular times and may overlap: a record may belong to several.

    Args:
        size: The length of a window.
        every: The time from the start of one window to the start of the next: at least a ten-thousandth of
            `size`, since each record changes size / every windows.
        grace: The time that late records are accepted after the end of a window.
    """

    size: timedelta
    every: timedelta

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("size", self.size, least=_MS)
        self._check("every", self.every, least=_MS)
        if self.every > self.size:
            raise GraphError(
                f"Hopping has every={self.every!r}, more than size={self.size!r}: records in between would belong to no window"
            )
        if (windows := -(-self.size // self.every)) > HOPS_MAX:
            raise GraphError(
                f"Hopping has size={self.size!r} and every={self.every!r}: each record would change {windows:,} windows; give "
                f"at most {HOPS_MAX:,}, by a longer every or a shorter size"
            )

    @property
    def size_ms(self) -> int:
        return self.size // _MS

    @property
    def every_ms(self) -> int:
        """The milliseconds from the start of one window to the start of the next."""
        return self.every // _MS

    @property
    def meaning(self) -> str:
        return f"hopping windows of {self.size_ms} ms every {self.every_ms} ms, {self._closing}"

    def assign(self, times: Sequence[int]) -> Assigned:
        size, every = self.size_ms, self.every_ms
        # From the first start above time - size. Kafka Streams omits windows that start before 1970.
        ranges = [range((time - size + every) // every * every, time + 1, every) for time in times]
        indexes = chain.from_iterable(map(repeat, range(len(times)), map(len, ranges)))
        return Assigned(list(indexes), list(chain.from_iterable(ranges)))


@dataclass(frozen=True)
class Sliding(SizedWindow):
    """Windows around each group of records of a key that are at most `difference` apart, both ends inclusive.

    The windows of a key are those that end at one of its records, and those that begin one millisecond after one of its
    records and are not empty: each set of records that fit into one window is in exactly one.

    Args:
        difference: The most that two records of a window may be apart.
        grace: The time that late records are accepted after the end of a window.
    """

    difference: timedelta

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("difference", self.difference, least=timedelta(0))

    @property
    def size_ms(self) -> int:
        """The milliseconds from the start of a window to its end, which is inclusive."""
        return self.difference // _MS

    @property
    def meaning(self) -> str:
        return f"sliding windows of {self.size_ms} ms, {self._closing}"

    def closes_at(self, start: int, end: int) -> int:  # noqa: ARG002 - the end alone decides
        # The end belongs to the window: without a grace, a record in order must still find the window that ends at it open.
        return end + 1 + self.grace_ms

    def starts(self, times: Iterable[int]) -> list[int]:
        """Return the starts of all windows of a key that has records at these times."""
        ordered = sorted(set(times))
        size = self.size_ms
        found = {time - size for time in ordered}
        for time, after in pairwise(ordered):
            if after <= time + 1 + size:
                found.add(time + 1)
        return sorted(found)


@dataclass(frozen=True)
class Session(Window):
    """Periods of activity of a key: records at most `gap` apart belong to the same session.

    A session reaches from its first to its last record, both inclusive. A record between two sessions merges them.

    Args:
        gap: The most that a record may be away from a session to belong to it.
        grace: The time that late records are accepted after the end of a window.
    """

    gap: timedelta

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("gap", self.gap, least=timedelta(0))

    @property
    def gap_ms(self) -> int:
        return self.gap // _MS

    @property
    def meaning(self) -> str:
        return f"sessions with a gap of {self.gap_ms} ms, {self._closing}"

    def key(self, inner: Codec[K]) -> Codec[Windowed[K]]:
        return SessionKey(inner)

    def closes_at(self, start: int, end: int) -> int:  # noqa: ARG002 - the end alone decides
        # A record at end + gap still belongs to it, one millisecond later it does not.
        return end + self.gap_ms + 1 + self.grace_ms

    def closing(self) -> Callable[[bytes, bytes], int | None]:
        later = self.closes_at(0, 0)

        def closes(key: bytes, _: bytes) -> int | None:
            if len(key) < END_START.size:
                return None
            end: int = END_START.unpack_from(key, len(key) - END_START.size)[0]
            return end + later

        return closes

    def closings(self) -> Callable[[Sequence[bytes]], Sequence[int | None]]:
        when, later, size = self.closing(), self.closes_at(0, 0), END_START.size

        def close(keys: Sequence[bytes]) -> Sequence[int | None]:
            suffixes = b"".join([key[-size:] for key in keys])
            if len(suffixes) < size * len(keys):
                return [when(key, b"") for key in keys]
            return [end + later for end, _ in END_START.iter_unpack(suffixes)]

        return close


class SessionBounds(NamedTuple):
    """A session: the times of its first and of its last record."""

    start: int
    end: int
