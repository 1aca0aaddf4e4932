from typing import Any

from pyspark.sql import SparkSession

from streamtable_spark.transforms.history_order import in_order


def ordered(spark: SparkSession, *last: str) -> list[tuple[Any, ...]]:
    made = [("a", 0, 0, 3), ("a", 0, 1, 1), ("b", 0, 0, 2), ("b", 0, 1, 4), ("c", 0, 0, 0), ("c", 0, 1, 5)]
    rows = ", ".join(
        f"('{topic}', {partition}, {offset}L, timestamp_seconds({seconds}))"
        for topic, partition, offset, seconds in made
    )
    records = spark.sql(
        f"SELECT *, CAST(NULL AS BINARY) key, CAST(NULL AS BINARY) value, "
        f"CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) headers FROM VALUES {rows} AS t(topic, partition, offset, timestamp)"
    )
    found = in_order(records, (), (), 1, last).collect()
    return [(row["topic"], row["offset"]) for row in found]


def test_records_come_by_time_across_topics_and_by_offset_in_each(spark: SparkSession) -> None:
    assert ordered(spark) == [("c", 0), ("b", 0), ("a", 0), ("a", 1), ("b", 1), ("c", 1)]


def test_the_records_of_the_last_topics_come_after_all_others(spark: SparkSession) -> None:
    assert ordered(spark, "c", "b") == [("a", 0), ("a", 1), ("c", 0), ("b", 0), ("b", 1), ("c", 1)]
