"""Windows of days in a time zone, compared with the dates that the zone's clocks show."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamtable import Long, Stream, String
from streamtable.errors import StateMeaningChanged
from streamtable.flow import DayWindowKey, Flow, Tumbling, Windowed
from streamtable.flow.windows.zone_days import ZoneDays
from streamtable_testing import Tester

ZONES = {
    "UTC": [],
    "Europe/Berlin": [(2024, 3, 31), (2024, 10, 27)],
    "America/New_York": [(2007, 3, 11), (2024, 11, 3)],
    "America/Sao_Paulo": [(2018, 11, 4), (2018, 2, 18)],  # there was no midnight; 23:00 to 24:00 came twice
    "Asia/Beirut": [(2021, 3, 28), (2021, 10, 31)],  # the same
    "America/Havana": [(2020, 11, 1), (2020, 3, 8)],  # midnight came twice; there was none
    "America/St_Johns": [(2010, 11, 7)],  # at 00:01 clocks went back to the day before
    "Pacific/Apia": [(2011, 12, 30)],  # a day was skipped
    "Asia/Kolkata": [(1996, 1, 1)],
    "Australia/Lord_Howe": [(2023, 4, 2)],  # clocks are changed by half an hour
    "Asia/Kathmandu": [(1986, 1, 1)],
}
MINUTE, DAY = 60_000, 86_400_000


def times_in(zone: str) -> st.SearchStrategy[int]:
    """Times of fifty years, and around the changes of a zone."""
    near = [int(datetime(*day, tzinfo=UTC).timestamp() * 1000) for day in ZONES[zone]]
    around = [st.integers(at - 2 * DAY, at + 2 * DAY) for at in near]
    return st.one_of(st.integers(0, 1_600_000_000_000), *around)


def date_in(zone: str, time_ms: int) -> date:
    return datetime.fromtimestamp(time_ms // 1000, ZoneInfo(zone)).date()


def first_minute_of_its_day(zone: str, time_ms: int) -> int:
    """By the definition: go back until a date is reached that was never shown before."""
    first = time_ms // MINUTE * MINUTE
    minutes = [first - back * MINUTE for back in range(60 * 50, -1, -1)]
    shown = [date_in(zone, minute) for minute in minutes]
    latest, begins = shown[0], minutes[0]
    for minute, day in zip(minutes, shown, strict=True):
        if day > latest:
            latest, begins = day, minute
    return begins


@given(
    st.sampled_from(sorted(ZONES)).flatmap(
        lambda zone: st.tuples(st.just(zone), st.lists(times_in(zone), max_size=4))
    )
)
def test_a_day_begins_when_the_clocks_of_its_zone_show_its_date_for_the_first_time(
    given_: tuple[str, list[int]],
) -> None:
    zone, times = given_
    window = Tumbling(days=1, zone=zone, grace=timedelta(0))
    assigned = window.assign(times)
    assert assigned.indexes is None
    assert list(assigned.starts) == [first_minute_of_its_day(zone, time) for time in times]
    for time, start in zip(times, assigned.starts, strict=True):
        end = window.end_of(start)
        assert start <= time < end
        assert first_minute_of_its_day(zone, end) == end
        assert first_minute_of_its_day(zone, end - 1) == start


@given(st.sampled_from(sorted(ZONES)), st.integers(1, 40), st.integers(0, 1_600_000_000_000))
def test_periods_of_days_are_counted_from_a_monday_and_leave_no_gap(zone: str, days: int, time: int) -> None:
    periods, single = ZoneDays(days, zone), ZoneDays(1, zone)
    (start,) = periods.starts_of([time])
    end = periods.end_of(start)
    assert start <= time < end <= start + periods.longest_ms
    assert periods.starts_of([start, end - 1, end]) == [start, start, end]
    assert single.starts_of([start]) == [start]
    first = (date_in(zone, start) - date(1970, 1, 5)).days
    assert (
        first % days == 0 or zone == "Pacific/Apia"
    )  # where the first day of a period may be the skipped one


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", (2024, 3, 31), 23),
        ("Europe/Berlin", (2024, 10, 27), 25),
        ("America/Sao_Paulo", (2018, 11, 4), 23),
        ("Australia/Lord_Howe", (2023, 4, 2), 24.5),
        ("Asia/Kolkata", (2024, 3, 31), 24),
        ("Pacific/Auckland", (9999, 12, 31), 24),  # ends in the year 10000, beyond datetime's range
    ],
)
def test_a_day_has_the_hours_that_its_clocks_show(zone: str, day: tuple[int, int, int], hours: float) -> None:
    noon = int(datetime(*day, 12, tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    (start,) = ZoneDays(1, zone).starts_of([noon])
    assert ZoneDays(1, zone).end_of(start) - start == hours * 3_600_000


@pytest.mark.parametrize("time", [-(1 << 63), (1 << 63) - 1])
def test_any_eight_bytes_have_a_day(time: int) -> None:
    days = ZoneDays(1, "Europe/Berlin")  # a table is loaded before its meaning is compared
    (start,) = days.starts_of([time])
    assert start <= time < days.end_of(time)


def test_a_week_begins_on_monday() -> None:
    wednesday = int(datetime(2024, 10, 30, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    (start,) = ZoneDays(7, "Europe/Berlin").starts_of([wednesday])
    assert date_in("Europe/Berlin", start) == date(2024, 10, 28)
    assert ZoneDays(7, "Europe/Berlin").end_of(start) - start == 7 * DAY


def test_a_key_of_a_day_is_the_key_and_the_start_and_its_end_is_that_of_the_day() -> None:
    codec = DayWindowKey(String(), 1, "Europe/Berlin")
    start = int(datetime(2024, 3, 31, tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)
    window = Windowed("alice", start, start + 23 * 3_600_000)
    assert codec.encode(window) == b"alice" + start.to_bytes(8)
    assert codec.decode(codec.encode(window)) == window
    assert codec == DayWindowKey(codec.key, 1, "Europe/Berlin") != DayWindowKey(codec.key, 1, "Europe/Paris")
    assert repr(codec) == "DayWindowKey(String(), 1, 'Europe/Berlin')"


def berlin(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo("Europe/Berlin")).timestamp() * 1000)


EVENTS: Stream[str, int] = Stream("events", String(), Long())


def counted(zone: str = "Europe/Berlin", days: int = 1) -> tuple[Flow, Any, Tumbling]:
    window = Tumbling(days=days, zone=zone, grace=timedelta(hours=1))
    flow = Flow("f")
    return flow, flow.stream(EVENTS, time=lambda at: at).group_by_key().window(window).count("n"), window


def test_a_count_by_day_is_that_of_the_zone_and_its_days_close_at_midnight_and_the_grace() -> None:
    flow, counts, window = counted()
    out: Stream[Any, int] = Stream("out", window.key(String()), Long())
    every: Stream[Any, Any] = Stream("every", window.key(String()), Long())
    counts.final().to(out)
    counts.every("hourly", timedelta(hours=1)).to(every)
    spring = Windowed("k", berlin("2023-03-26"), berlin("2023-03-27"))
    assert spring.end_ms - spring.start_ms == 23 * 3_600_000
    with Tester() as tester:
        tester.create(out)
        tester.create(every)
        tester.run(flow)
        for text in (
            "2023-03-25T23:59:59",
            "2023-03-26T00:00:00",
            "2023-03-26T23:59:59",
            "2023-03-27T00:59:59",
        ):
            tester.emit(EVENTS, "k", berlin(text))
        tester.emit(EVENTS, "k", berlin("2023-03-26T12:00:00"))  # out of order, within the grace
        assert [record.key and record.key.start_ms for record in tester.records(out)] == [
            berlin("2023-03-25")
        ]
        tester.emit(EVENTS, "other", berlin("2023-03-27T01:00:00"))
        (first, second) = tester.records(out)
        assert (first.value, second.key, second.value) == (1, spring, 3)
        assert second.timestamp_ms == spring.end_ms - 1
        tester.emit(EVENTS, "k", berlin("2023-03-26T12:00:00"))  # late now
        assert len(tester.records(out)) == 2
        view = tester.view(counts.table)
        assert view.get(spring) == 3
        assert view.windows("k", spring.end_ms - 1, spring.end_ms) == [(spring, 3)]
        last_of_the_day = [record for record in tester.records(every) if record.key == spring][-1]
        assert last_of_the_day.value == 3


@pytest.mark.parametrize("other", [("Europe/Paris", 1), ("Europe/Berlin", 7)])
def test_a_table_of_days_is_not_taken_up_with_another_zone_or_other_days(other: tuple[str, int]) -> None:
    with Tester() as tester:
        flow, _, _ = counted()
        tester.run(flow)
        tester.emit(EVENTS, "k", berlin("2023-03-26"))
        tester.leave(flow.group())
        del tester._instances["f"]
        changed, _, _ = counted(*other)
        with pytest.raises(StateMeaningChanged, match=r"1 days in Europe/Berlin"):
            tester.run(changed)
