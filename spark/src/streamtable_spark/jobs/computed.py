"""Tables computed from history: by Spark itself, or by the group's own handlers in Spark's workers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.jobs.job_args import TABLE, Source
from streamtable_spark.replay import SCHEMA, SUMMARY, GroupReplay, Summary
from streamtable_spark.transforms.applied import RECORD, applied, kept, letters
from streamtable_spark.transforms.changelog import ROW
from streamtable_spark.transforms.history_order import in_order
from streamtable_spark.transforms.tables import GroupTable, events, read_values, values

Times = Mapping[int, Mapping[str, tuple[int, int]]]


@dataclass(frozen=True)
class Computed:
    """The tables of a group.

    Attributes:
        values: Of each table by its name: `partition`, `key`, `value` (bytes).
        rows: The same with `row`, a struct with the field `value` in which two versions are compared.
        counts: How many `events` there were, and how many of them no handler may see (`unfit`).
        times: The event time that each input of the graph has reached, and the watermark, by partition.
        persisted: What is to be unpersisted in the end.
    """

    values: Mapping[str, DataFrame]
    rows: Mapping[str, DataFrame]
    counts: Mapping[str, int]
    times: Times = field(default_factory=dict)
    persisted: Sequence[DataFrame] = ()

    def unpersist(self) -> None:
        for each in self.persisted:
            each.unpersist()


@dataclass(frozen=True)
class History:
    """What tables are computed from.

    Attributes:
        records: The records of inputs, retries and all other topics that are needed.
        dead: The dead letters.
        retries: The retry topics among the records.
        partitions: The number of partitions of the inputs.
        now: Seconds since 1970: the time that handlers see.
        watermarks: Where the watermark of each partition is to end at least.
    """

    records: DataFrame
    dead: DataFrame
    retries: Sequence[str]
    partitions: int
    now: float
    watermarks: Mapping[int, int] = field(default_factory=dict)


def compute(session: SparkSession, source: Source, history: History) -> Computed:
    """Compute the tables of a group from its history."""
    if source.table is not None:
        return _natively(source, source.table, history)
    return _by_handlers(session, source, history)


def live_rows(source: Source, held: DataFrame) -> DataFrame:
    """Return the rows that a changelog holds, with `row` as `Computed.rows` have it; null where the bytes are no row."""
    if source.table is not None:
        return read_values(held, source.table)
    return held.withColumn("row", fn.struct("value"))


def _natively(source: Source, table: GroupTable, history: History) -> Computed:
    rows = rows_of(source, table, history.records, history.dead, history.retries).persist()
    made = values(rows, table).persist()
    found = rows.agg(fn.sum("events").alias("events"), fn.sum("unfit").alias("unfit")).collect()[0]
    counts = {"events": found["events"] or 0, "unfit": found["unfit"] or 0}
    known = rows.where("row IS NOT NULL")
    return Computed({TABLE: made}, {TABLE: known}, counts, persisted=(made, rows))


def rows_of(
    source: Source, table: GroupTable, records: DataFrame, dead: DataFrame, retries: Sequence[str]
) -> DataFrame:
    """Compute the rows from records of inputs, retries and context, and from dead letters; see `GroupTable.rows`."""
    counted = applied(records, retries, source.inputs, letters(dead))
    by_topic = {
        name: events(counted.where(counted["input"] == source.topic(name)), record)
        for name, record in table.inputs.items()
    }
    by_topic |= {
        name: events(records.where(records["topic"] == source.topic(name)), record)
        for name, record in table.context.items()
    }
    return table.rows(by_topic)


def _by_handlers(session: SparkSession, source: Source, history: History) -> Computed:
    assert source.program is not None, "there is one or the other"
    records = history.records
    tables = [*source.joins_read, *source.context]
    handled = kept(records, history.retries, source.inputs, letters(history.dead)).select(*RECORD)
    if tables:
        handled = handled.unionByName(records.where(fn.col("topic").isin(*tables)).select(*RECORD))
    replay = GroupReplay(
        source.program, history.partitions, history.now, source.names(history.retries), history.watermarks
    )
    answers = [source.topic(name) for name in source.program.answers]
    ordered = in_order(handled, tables, source.context, history.partitions, answers)
    made = session.createDataFrame(ordered.rdd.mapPartitions(replay), SCHEMA, verifySchema=False).persist()
    summaries = {
        row["partition"]: Summary.decode(bytes(row["value"]))
        for row in made.where(fn.col("name") == SUMMARY).collect()
    }
    of_name = {name: made.where(fn.col("name") == name).select(*ROW) for name in source.tables}
    return Computed(
        of_name,
        {name: rows.withColumn("row", fn.struct("value")) for name, rows in of_name.items()},
        {"events": sum(each.events for each in summaries.values()), "unfit": 0},
        {number: each.times for number, each in summaries.items()},
        (made,),
    )
