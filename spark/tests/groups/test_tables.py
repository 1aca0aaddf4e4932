import json
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from contracts.records import USER_CLICK, USER_STATUS, USER_STATUS_UPDATE, UserClick, UserStatusUpdate
from streamtable import Avro
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.tables import (
    LONG,
    TABLES,
    GroupTable,
    counts,
    events,
    read_values,
    table_named,
    values,
)
from user_status.domain import is_later, row_of

CLICKS, UPDATES, STATUSES = Avro(USER_CLICK), Avro(USER_STATUS_UPDATE), Avro(USER_STATUS)
START = datetime(2026, 3, 1, tzinfo=UTC)
Record = tuple[int, datetime, bytes | None, bytes | None]


def frame(spark: SparkSession, *records: Record) -> DataFrame:
    numbered = [(*record, offset) for offset, record in enumerate(records)]
    return spark.createDataFrame(
        numbered, "partition int, timestamp timestamp, key binary, value binary, offset long"
    )


def table(spark: SparkSession, scenario: GroupTable, **records: list[Record]) -> dict[Any, Any]:
    schemas = {**scenario.inputs, **scenario.context}
    by_topic = {
        name: events(frame(spark, *records[name.replace("-", "_")]), schema)
        for name, schema in schemas.items()
    }
    rows = values(scenario.rows(by_topic), scenario).collect()
    return {(row["partition"], bytes(row["key"])): bytes(row["value"]) for row in rows}


def click(user: str, id: str = "1") -> bytes:  # noqa: A002 - as the field
    return CLICKS.encode(UserClick(id=id, user_id=user, url="u", at=0))


def test_a_group_is_known_by_its_scenario_with_any_version_behind_it() -> None:
    assert table_named("click-count-v2") is table_named("click-count") is TABLES["click-count"]
    assert table_named("click-counter") is table_named("click-v2-count") is None


def test_clicks_are_counted_once_in_the_partition_in_which_they_are_and_unfit_ones_are_left_out(
    spark: SparkSession,
) -> None:
    good = click("a")
    found = table(
        spark,
        TABLES["click-count"],
        user_clicks=[
            (0, START, b"a", good),
            (0, START, b"a", click("a", "2")),
            (0, START, b"a", good),
            (1, START, b"a", good),
            (0, START, b"", click("", "3")),
            (0, START, b"a", good[:-1]),
            (0, START, b"a", good + b"\0"),
            (0, START, b"a", None),
            (0, START, None, good),
            (0, START, b"\xff", good),
            (0, START, b"only unfit", b""),
        ],
    )
    counts = Avro("long")
    assert found == {(0, b"a"): counts.encode(2), (1, b"a"): counts.encode(1), (0, b""): counts.encode(1)}


def test_an_event_without_an_id_does_not_count_where_each_id_counts_once(spark: SparkSession) -> None:
    schema = json.dumps(
        {"type": "record", "name": "Event", "fields": [{"name": "id", "type": ["null", "string"]}]}
    )
    counting = GroupTable("n", {"events": AvroCodec(schema)}, LONG, (), counts("events", "id"))
    named, nameless = (Avro(schema).encode({"id": each}) for each in ("1", None))
    sent: list[Record] = [(0, START, b"a", named), (0, START, b"a", nameless), (0, START, b"b", nameless)]
    assert table(spark, counting, events=sent) == {(0, b"a"): Avro("long").encode(1)}


def test_statuses_are_those_of_the_service_whatever_the_order(spark: SparkSession) -> None:
    """Compared with the service's own rule, folded over the same updates; each user's clicks have known times."""
    random = Random(5)
    rows: dict[str, Any] = {}
    updates: list[Record] = []
    clicks: list[Record] = []
    count = dict.fromkeys("abc", 0)
    for second in range(120):
        user, time = random.choice("abc"), START + timedelta(seconds=second)
        if random.random() < 0.4:
            count[user] += 1
            clicks.append((0, time, user.encode(), click(user, f"{second}")))
            continue
        update = UserStatusUpdate(
            id=random.choice(["x", "y", "ü", "\U0001f600"]),
            user_id=user,
            status=random.choice("pqr"),
            at=random.randrange(20),
        )
        updates.append((0, time, user.encode(), UPDATES.encode(update)))
        if is_later(update, rows.get(user)):
            rows[user] = row_of(update, count[user])
    random.shuffle(updates)
    found = table(spark, TABLES["user-status"], user_status_updates=updates, user_clicks=clicks)
    assert {key.decode(): STATUSES.decode(value) for (_, key), value in found.items()} == rows


def test_rows_are_read_back_and_bytes_that_are_none_are_null(spark: SparkSession) -> None:
    held = spark.createDataFrame(
        [(0, b"a", Avro("long").encode(-3)), (0, b"b", b"x")], "partition int, key binary, value binary"
    )
    found = {bytes(row["key"]): row["row"] for row in read_values(held, TABLES["click-count"]).collect()}
    assert found[b"a"]["value"] == -3
    assert found[b"b"] is None
