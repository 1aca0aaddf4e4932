from pyspark.sql import DataFrame, SparkSession

from streamtable_spark.transforms.changelog import changes, digests, rows_held

Rows = dict[tuple[int, bytes], bytes | None]


def rows(spark: SparkSession, *found: tuple[int, bytes, bytes]) -> DataFrame:
    return spark.createDataFrame(list(found), "partition int, key binary, value binary")


def collected(frame: DataFrame) -> Rows:
    return {
        (row["partition"], bytes(row["key"])): None if row["value"] is None else bytes(row["value"])
        for row in frame.collect()
    }


def test_the_last_record_of_a_key_in_a_partition_counts_and_a_null_value_deletes(spark: SparkSession) -> None:
    log = [
        (0, 0, b"a", b"1"), (0, 1, b"b", b"1"), (0, 2, b"a", b"2"), (0, 3, b"b", None), (1, 0, b"a", b"9"),
        (0, 4, None, b"1"), (0, 5, b"", b""),
    ]  # fmt: skip
    frame = spark.createDataFrame(log, "partition int, offset bigint, key binary, value binary")
    assert collected(rows_held(frame)) == {(0, b"a"): b"2", (1, b"a"): b"9", (0, b""): b""}


def test_only_what_differs_is_written_and_what_must_vanish_is_deleted(spark: SparkSession) -> None:
    target = rows(spark, (0, b"same", b"1"), (0, b"other", b"2"), (0, b"new", b"3"), (1, b"gone", b"4"))
    held = rows(spark, (0, b"same", b"1"), (0, b"other", b"1"), (0, b"gone", b"4"), (0, b"", b""))
    expected: Rows = {
        (0, b"other"): b"2",
        (0, b"new"): b"3",
        (0, b"gone"): None,
        (0, b""): None,
        (1, b"gone"): b"4",
    }
    assert collected(changes(target, held)) == expected
    assert collected(changes(target, target)) == {}


def test_a_digest_is_of_all_bytes_in_any_order(spark: SparkSession) -> None:
    def digest(*found: tuple[int, bytes, bytes]) -> list[tuple[int, int, str]]:
        return [tuple(row) for row in digests(rows(spark, *found)).orderBy("partition").collect()]

    one = digest((0, b"a", b"1"), (0, b"b", b"2"), (2, b"c", b""))
    assert [(partition, count) for partition, count, _ in one] == [(0, 2), (2, 1)]
    assert all(len(text) == 16 for _, _, text in one)
    assert one == digest((2, b"c", b""), (0, b"b", b"2"), (0, b"a", b"1"))
    assert one[0] != digest((0, b"a", b"2"), (0, b"b", b"1"))[0]
    assert digest((0, b"ab", b"c")) != digest((0, b"a", b"bc")), "where the key ends is part of it"
