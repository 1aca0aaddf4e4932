from datetime import UTC, datetime
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.transforms.applied import applied, letters

SCHEMA = (
    "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, "
    "headers array<struct<key: string, value: binary>>"
)


def origin(offset: int, attempt: int | None = None, topic: str = "clicks", partition: int = 0) -> list[Any]:
    found = {"origin-topic": topic, "origin-partition": partition, "origin-offset": offset}
    if attempt is not None:
        found["attempt"] = attempt
    return [(f"streamtable-{name}", str(value).encode()) for name, value in found.items()]


def test_a_retry_has_the_timestamp_of_its_origin_however_late_it_was_sent_again(spark: SparkSession) -> None:
    said = "streamtable-origin-timestamp-ms"
    dated = [(said, b"777"), (said, b"-5"), (said, b"9" * 18), (said, b"x"), (said, b"9" * 30), None]
    records = [
        (
            "g-retry",
            0,
            offset,
            datetime(2026, 3, 1, tzinfo=UTC),
            b"k",
            b"v",
            [*origin(offset), *([at] if at else [])],
        )
        for offset, at in enumerate(dated)
    ]
    records.append(("clicks", 0, 9, datetime(2026, 3, 1, tzinfo=UTC), b"k", b"v", [(said, b"777")]))
    none = letters(frame(spark), {})
    ends = {"clicks[0]": 10, "clicks[1]": 10}
    found = applied(spark.createDataFrame(records, SCHEMA), {"g-retry": ends}, ["clicks"], none)
    rows = found.select("offset", fn.unix_millis("timestamp").alias("ms")).collect()
    march = 1_772_323_200_000
    assert dict(map(tuple, rows)) == {0: 777, 1: -1, 2: -1, 3: -1, 4: -1, 5: -1, 9: march}


def frame(spark: SparkSession, *records: tuple[str, int, int, list[Any] | None]) -> DataFrame:
    return spark.createDataFrame(
        [(topic, part, offset, None, b"k", b"v", headers) for topic, part, offset, headers in records], SCHEMA
    )


def test_a_group_has_applied_what_it_has_not_set_aside_and_what_was_sent_again_without_failing_again(
    spark: SparkSession,
) -> None:
    dead = frame(
        spark,
        ("g-dead-letters", 0, 0, origin(1, 1)),
        ("g-dead-letters", 0, 1, origin(2, 1)),
        ("g-dead-letters", 0, 2, origin(2, 2)),
        ("g-dead-letters", 0, 3, [("streamtable-replayed-offset", b"0")]),
        ("g-dead-letters", 0, 4, None),
    )
    records = frame(
        spark,
        ("clicks", 0, 0, None),
        ("clicks", 0, 1, None),
        ("clicks", 0, 2, None),
        ("clicks", 1, 1, [("other", None)]),
        ("g-retry", 0, 0, origin(1, 1)),  # went well
        ("g-retry", 0, 1, origin(2, 1)),  # failed again
        ("g-retry", 0, 2, origin(7)),  # by a tool that sets no attempt
        ("g-retry", 0, 3, origin(8, 1, partition=1)),  # the row would be elsewhere
        ("g-retry", 0, 4, origin(8, 1, topic="others")),
        ("g-retry", 0, 5, None),
        ("g-retry", 0, 7, origin(10, 1)),  # behind the end of the input
        (
            "g-retry",
            0,
            6,
            [*origin(9, 1), ("streamtable-origin-offset", b"x")],
        ),  # the last one of a name counts
        ("others", 0, 0, None),
    )
    found = applied(
        records,
        {"g-retry": {"clicks[0]": 10, "clicks[1]": 10}},
        ["clicks"],
        letters(dead, {"g-dead-letters": {"clicks[0]": 10, "clicks[1]": 10}}),
    )
    assert sorted((row["topic"], row["partition"], row["offset"]) for row in found.collect()) == [
        ("clicks", 0, 0),
        ("clicks", 1, 1),
        ("g-retry", 0, 0),
        ("g-retry", 0, 2),
    ]
    assert {row["input"] for row in found.collect()} == {"clicks"}
