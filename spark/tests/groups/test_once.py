"""The batch rule of `Once` equals the library's rule, record by record."""

from datetime import UTC, datetime, timedelta
from random import Random

from pyspark.sql import SparkSession

from streamtable.graph.once import accept
from streamtable_spark.transforms.once import accepted

COLUMNS = "partition int, offset long, timestamp timestamp, key string, id string, retry boolean"
WITHIN = timedelta(seconds=20)


def test_the_batch_accepts_what_the_library_accepts(spark: SparkSession) -> None:
    random = Random(5)
    start = datetime(2026, 3, 1, tzinfo=UTC)
    records = []
    for partition in range(3):
        for offset in range(200):
            seconds = offset / 2 - random.choice([0, 0, 0, 5, 40])
            far = timedelta(days=30_000) if random.random() < 0.02 else timedelta(0)
            at = start + timedelta(seconds=seconds) + far
            records.append((partition, offset, at, "k", str(random.randrange(25)), False))
    expected = set()
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    for partition in range(3):
        own = [record for record in records if record[0] == partition]
        kept = accept(
            [record[4].encode() for record in own],
            [int(record[2].timestamp() * 1000) for record in own],
            WITHIN // timedelta(milliseconds=1),
            now_ms,
        )
        expected |= {(partition, record[1]) for record, good in zip(own, kept, strict=True) if good}
    found = accepted(spark.createDataFrame(records, COLUMNS), WITHIN).collect()
    assert len(found) == len(expected) < len(records)
    assert {(row["partition"], row["offset"]) for row in found} == expected
