from datetime import UTC, datetime

from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from streamtable_spark.transforms import statuses

UPDATES = (
    "timestamp timestamp, key string, event struct<status: string, at: long, id: string>, repeat boolean"
)
CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
CLOCK_MS = round(CLOCK.timestamp() * 1000)
ROWS = [
    ("ann", ("lunch", 20, "b"), False),
    ("ann", ("work", 10, "a"), False),
    ("ann", ("lunch", 20, "b"), True),
    ("ann", ("home", 20, "c"), False),
    ("bob", ("away", 5, "d"), False),
    ("bob", ("for ever", CLOCK_MS + 300_001, "e"), False),
    ("bob", ("before all time", -1, "f"), False),
]


def test_a_status_lasts_until_the_next_one_by_its_own_time_whatever_order_they_came_in(
    spark: SparkSession,
) -> None:
    assertDataFrameEqual(
        statuses.history(spark.createDataFrame([(CLOCK, *row) for row in ROWS], UPDATES)),
        spark.createDataFrame(
            [
                ("ann", "work", 10, "a", 20),
                ("ann", "lunch", 20, "b", 20),
                ("ann", "home", 20, "c", None),
                ("bob", "away", 5, "d", None),
            ],
            "user_id string, status string, at long, id string, until long",
        ),
    )
