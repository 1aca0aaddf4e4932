from pyspark.sql import SparkSession

from streamtable_spark.transforms.differences import differences, overwritten

ROW = "row struct<value: struct<a: bigint, b: bigint>>"


def test_every_kind_of_difference_is_found_and_equal_rows_are_not(spark: SparkSession) -> None:
    expected = spark.createDataFrame(
        [
            (0, b"same", ((1, 1),)),
            (0, b"other", ((1, 1),)),
            (0, b"missing", ((1, 1),)),
            (0, b"bad", ((1, 1),)),
        ],
        f"partition int, key binary, {ROW}",
    )
    live = spark.createDataFrame(
        [
            (0, b"same", ((1, 2),), b"-"),
            (0, b"other", ((2, 1),), b"-"),
            (0, b"bad", None, b"!"),
            (1, b"same", ((1, 1),), b"-"),
        ],
        f"partition int, key binary, {ROW}, value binary",
    )

    def found(*compared: str) -> dict[tuple[int, bytes], str]:
        rows = differences(expected, live, compared).collect()
        return {(row["partition"], bytes(row["key"])): row["difference"] for row in rows}

    always = {
        (0, b"other"): "different",
        (0, b"missing"): "missing",
        (0, b"bad"): "unreadable",
        (1, b"same"): "extra",
    }
    assert found("a") == always
    assert found() == {**always, (0, b"same"): "different"}, "whole rows, when no fields are named"


def test_a_missing_row_whose_key_was_written_again_is_no_difference_since_compaction_can_have_removed_it(
    spark: SparkSession,
) -> None:
    found = spark.createDataFrame(
        [
            ("table", 0, b"a", "missing"),
            ("table", 1, b"a", "missing"),
            ("table", 0, b"b", "extra"),
            ("table", 0, b"c", "missing"),
            ("open", 0, b"a", "missing"),
        ],
        "table string, partition int, key binary, difference string",
    )
    again = [("table", 0, b"a"), ("table", 0, b"a"), ("table", 0, b"b")]
    later = spark.createDataFrame(again, "table string, partition int, key binary")
    assert sorted(
        (row["table"], row["partition"], bytes(row["key"]), row["difference"])
        for row in overwritten(found, later).collect()
    ) == [
        ("open", 0, b"a", "missing"),
        ("table", 0, b"a", "overwritten"),
        ("table", 0, b"b", "extra"),
        ("table", 0, b"c", "missing"),
        ("table", 1, b"a", "missing"),
    ]
