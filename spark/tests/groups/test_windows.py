"""Final results of flows' windows equal Spark's windows over the same records."""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as fn

from streamtable import EventTime, Long, Stream, String
from streamtable.flow import Flow, Hopping, Session, Tumbling, Windowed
from streamtable.flow.windows.windows import Window
from streamtable_testing import Tester

BEGAN_MS = 1_600_000_000_000
GRACE = timedelta(minutes=2)
EVENTS: Stream[str, int] = Stream("events", String(), Long())
Found = dict[Windowed[str], int]


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


CASES: Mapping[str, tuple[Window, Callable[[Column], Column], int]] = {
    "tumbling": (Tumbling(seconds(10), grace=GRACE), lambda at: fn.window(at, "10 seconds"), 0),
    "hopping": (
        Hopping(seconds(10), seconds(4), grace=GRACE),
        lambda at: fn.window(at, "10 seconds", "4 seconds"),
        0,
    ),
    # Spark's gap is exclusive, ours inclusive; Spark's session ends a gap after its last record.
    "session": (
        Session(seconds(3), grace=GRACE),
        lambda at: fn.session_window(at, "3001 milliseconds"),
        3001,
    ),
}


def records() -> list[tuple[str, int]]:
    """Return keys and times, up to a minute out of order, some of them twice, and some on the bounds of windows."""
    random = Random(7)
    made = [
        (random.choice("abcde"), BEGAN_MS + random.choice((1, 500, 1000)) * random.randrange(120))
        for _ in range(250)
    ]
    return sorted(made, key=lambda each: each[1] + random.randrange(60_000))


def of_flow(window: Any, given: Sequence[tuple[str, int]], last_ms: int = BEGAN_MS + 3_600_000) -> Found:
    """Return the final results, with the process killed in between."""
    key = window.key(String())
    out: Stream[Windowed[str], int] = Stream("out", key, Long())
    flow = Flow("f", event_time=EventTime(idle_after=None))
    grouped = flow.stream(EVENTS, time=lambda at: at).group_by_key()
    grouped.window(window).count("n").final().to(out)
    (group,) = flow.groups
    with Tester() as tester:
        tester.create(out)
        tester.run(group)
        for number, (name, at) in enumerate(given):
            if number % 100 == 99:
                tester.crash(group)
                tester.start(group, disk=number % 200 == 99)
            tester.emit(EVENTS, name, at)
        tester.emit(EVENTS, "last", last_ms)
        found = [(record.key, record.value) for record in tester.records(out)]
    result = {each: count for each, count in found if each is not None and count is not None}
    assert len(result) == len(found), "a final result came twice"
    return result


@pytest.mark.parametrize("kind", CASES)
def test_final_results_are_those_of_spark_s_windows(spark: SparkSession, kind: str) -> None:
    window, spark_window, after_last_ms = CASES[kind]
    given = records()
    frame = spark.createDataFrame(given, "key string, at bigint")
    counted = frame.groupBy("key", spark_window(fn.timestamp_millis("at")).alias("w")).count()
    bounds = [fn.unix_millis(f"w.{end}").alias(end) for end in ("start", "end")]
    rows = counted.select("key", *bounds, "count").collect()
    expected = {Windowed(row["key"], row["start"], row["end"] - after_last_ms): row["count"] for row in rows}
    assert of_flow(window, given) == expected
    assert len(expected) > 30


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe"])
def test_counts_by_day_are_those_of_the_dates_that_spark_has_for_the_zone(
    spark: SparkSession, zone: str
) -> None:
    began, half_an_hour = 1_679_500_000_000, 1_800_000  # in March 2023, before clocks are changed
    random = Random(7)
    given = sorted(
        ((random.choice("ab"), began + half_an_hour * random.randrange(48 * 14)) for _ in range(300)),
        key=lambda each: each[1],
    )
    frame = spark.createDataFrame(given, "key string, at bigint")
    day = fn.date_trunc("DAY", fn.from_utc_timestamp(fn.timestamp_millis("at"), zone)).alias("day")
    counted = frame.groupBy("key", day).count()
    starts = fn.unix_millis(fn.to_utc_timestamp("day", zone)).alias("start")
    ends = fn.unix_millis(fn.to_utc_timestamp(fn.col("day") + fn.expr("INTERVAL 1 DAY"), zone)).alias("end")
    rows = counted.select("key", starts, ends, "count").collect()
    expected = {Windowed(row["key"], row["start"], row["end"]): row["count"] for row in rows}
    window = Tumbling(days=1, zone=zone, grace=GRACE)
    assert of_flow(window, given, began + 30 * 86_400_000) == expected
    assert {each.end_ms - each.start_ms for each in expected} > {86_400_000} or zone == "Asia/Kolkata"
