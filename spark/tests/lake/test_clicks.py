from datetime import UTC, datetime, timedelta

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from streamtable_spark.transforms import clicks

SILVER = "partition int, offset long, timestamp timestamp, key string, event struct<id: string, at: long>, repeat boolean"
START = datetime(2026, 3, 1, tzinfo=UTC)
DAY = 86_400_000
ROWS = [
    (0, offset, START + timedelta(hours=6 * offset), *row)
    for offset, row in enumerate(
        [
            ("ann", ("1", 0), False),
            ("ann", ("1", 0), True),
            ("ann", ("2", DAY - 1), False),
            ("ann", ("3", DAY), False),
            ("bob", ("4", -1), False),
            ("bob", ("5", 2**62), False),
        ]
    )
]


def test_the_count_of_a_day_has_each_event_once_on_the_day_of_its_own_time(spark: SparkSession) -> None:
    found = clicks.per_day(spark.createDataFrame(ROWS, SILVER)).selectExpr("user_id", "string(day)", "clicks")
    assertDataFrameEqual(
        found.toDF("user_id", "day", "clicks"),
        spark.createDataFrame(
            [("ann", "1970-01-01", 2), ("ann", "1970-01-02", 1), ("bob", "1969-12-31", 1), ("bob", None, 1)],
            "user_id string, day string, clicks long",
        ),
    )
