"""The tables of the scenarios, computed from history: queries for the tables that processors maintain.

Events are grouped by partition and key, as a processor sees them: a key that a program has sent to a wrong partition
has a row there too.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from contracts.records import USER_CLICK, USER_STATUS, USER_STATUS_UPDATE
from streamtable_spark.transforms.avro import AvroCodec
from streamtable_spark.transforms.once import WITHIN, accepted

PLACE = ["partition", "key"]
CLICKS: Final = AvroCodec.released(USER_CLICK)
LONG: Final = AvroCodec('"long"')


@dataclass(frozen=True)
class GroupTable:
    """The definition of a group's table: the codecs of its topics, and the query that computes its rows.

    Attributes:
        name: The name of the scenario, which is also the usual name of its group.
        inputs: The codec of each topic whose events make rows.
        context: The codec of each further topic that is needed to compute rows.
        joins: The topics whose offsets the group commits beside its inputs' offsets: the tables that it joins.
        value: The codec of a row.
        fields: The fields that two versions must agree in; empty for whole rows. A field that depends on when the
            processor met an event is omitted.
        rows: Computes, from events by topic (see `events`), `partition`, `key`, `row` (a struct with the field `value`),
            `events` and `unfit` (how many the key has had); `row` is null for keys of unfit ones only.
    """

    name: str
    inputs: Mapping[str, AvroCodec]
    value: AvroCodec
    fields: tuple[str, ...]
    rows: Callable[[Mapping[str, DataFrame]], DataFrame]
    context: Mapping[str, AvroCodec] = field(default_factory=dict)
    joins: tuple[str, ...] = ()
    loop: ClassVar[None] = None
    tables: ClassVar[tuple[str, ...]] = ("table",)
    compared: ClassVar[tuple[str, ...]] = tables


def events(records: DataFrame, codec: AvroCodec) -> DataFrame:
    """Decode records to events.

    Args:
        records: The records, with at least `partition`, `key`, `value`, `timestamp`.
        codec: The codec of the values.

    Returns:
        The columns of `records`, with `event` (a struct; null for records that no handler may see: without key or
        value, with a key that is no text, with bytes that do not decode).
    """
    read = codec.decode(records).drop("reason")
    legal = fn.is_valid_utf8(fn.col("key").cast("string"))
    return read.withColumn("event", fn.when(legal, fn.col("decoded"))).drop("decoded")


def values(rows: DataFrame, table: GroupTable) -> DataFrame:
    """Return rows in the form of the changelog: `partition`, `key`, `row`, `value` (bytes)."""
    value = table.value.encode(fn.col("row")["value"]).alias("value")
    return rows.where("row IS NOT NULL").select(*PLACE, "row", value)


def read_values(held: DataFrame, table: GroupTable) -> DataFrame:
    """Decode the rows of a changelog: `partition`, `key`, `value`, and `row`, null where the bytes are no row."""
    read = table.value.decode(held)
    row = fn.struct(fn.col("decoded").alias("value"))
    return read.select(*PLACE, "value", fn.when(fn.col("reason").isNull(), row).alias("row"))


def counts(topic: str, event_id: str | None, within: timedelta = WITHIN) -> Callable[..., DataFrame]:
    """Return the query that counts the events of a topic by key.

    Args:
        topic: The topic.
        event_id: The field that holds the id of an event, which counts once however often it is sent; None: each event counts.
        within: How long an id is remembered.
    """

    def rows(by_topic: Mapping[str, DataFrame]) -> DataFrame:
        sent = by_topic[topic]
        read = sent.where("event IS NOT NULL")
        once = read if event_id is None else _that_count(sent, event_id, within)
        counts = once.groupBy(*PLACE).agg(fn.count("*").alias("count"))
        counted = sent.groupBy(*PLACE).agg(*_tally()).join(counts, PLACE, "left")
        row = fn.when(fn.col("count") > 0, fn.struct(fn.col("count").alias("value")))
        return counted.withColumn("row", row).drop("count")

    return rows


def latest_statuses(by_topic: Mapping[str, DataFrame]) -> DataFrame:
    """Return the latest status of each user by (time, id, text), with the number of clicks before it.

    The processor joins each update with the clicks that were counted when it was processed. Here they are those whose
    records have no later timestamp than the update's: the same if neither of the two groups has ever had a lag.
    """
    updates = by_topic["user-status-updates"]
    rank = fn.struct("event.at", "event.id", "event.status", (-fn.unix_micros("timestamp")).alias("first"))
    latest = updates.groupBy(*PLACE).agg(
        *_tally(), fn.max(fn.when(fn.col("event").isNotNull(), rank)).alias("last")
    )
    clicks = _that_count(by_topic["user-clicks"]).select(*PLACE, fn.unix_micros("timestamp").alias("time"))
    marks = latest.where("last IS NOT NULL").select(*PLACE, (-fn.col("last")["first"]).alias("until"))
    counted = (
        marks.join(clicks, PLACE, "left")
        .groupBy(*PLACE)
        .agg(fn.count(fn.when(fn.col("time") <= fn.col("until"), 1)).alias("clicks"))
    )
    row = fn.struct(
        fn.col("last")["status"].alias("status"),
        fn.col("last")["at"].alias("at"),
        fn.col("last")["id"].alias("id"),
        fn.coalesce("clicks", fn.lit(0)).alias("clicks"),
    )
    return latest.join(counted, PLACE, "left").select(
        *PLACE,
        "events",
        "unfit",
        fn.when(fn.col("last").isNotNull(), fn.struct(row.alias("value"))).alias("row"),
    )


def _that_count(clicks: DataFrame, event_id: str = "id", within: timedelta = WITHIN) -> DataFrame:
    """Return the events that repeat no earlier one. An event without an id has failed in the group, and does not count."""
    retry = fn.col("topic") != fn.col("input") if "input" in clicks.columns else fn.lit(False)
    read = clicks.where("event IS NOT NULL")
    of_event = fn.col("event").getField(event_id).alias("id")
    named = read.select(*PLACE, "offset", "timestamp", of_event, retry.alias("retry")).where("id IS NOT NULL")
    return accepted(named, within)


TABLES: Mapping[str, GroupTable] = {
    table.name: table
    for table in (
        GroupTable("click-count", {"user-clicks": CLICKS}, LONG, (), counts("user-clicks", "id")),
        GroupTable(
            "user-status",
            {"user-status-updates": AvroCodec.released(USER_STATUS_UPDATE)},
            AvroCodec.released(USER_STATUS),
            ("status", "at", "id"),
            latest_statuses,
            context={"user-clicks": CLICKS},
            joins=("click-count-table",),
        ),
    )
}
"""The tables by their names."""


def table_named(group: str) -> GroupTable | None:
    """Return the table of a group with a scenario's name, or with that and a version: `click-count-v2`. None for others."""
    return TABLES.get(group) or TABLES.get(unversioned(group))


def unversioned(group: str) -> str:
    """Return the name of a group without the version behind it: `click-count` for `click-count-v2`."""
    name, _, version = group.rpartition("-v")
    return name if version.isdecimal() else group


def _tally() -> list[Any]:
    return [fn.count("event").alias("events"), fn.count(fn.when(fn.col("event").isNull(), 1)).alias("unfit")]
