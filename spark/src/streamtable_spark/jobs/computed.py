"""Tables computed from history: by Spark itself, or by the group's own handlers in Spark's workers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.history import read, whole
from streamtable_spark.jobs.lake_history import lake_history, read_with
from streamtable_spark.jobs.manifest import Manifest
from streamtable_spark.jobs.positions import TABLE, Offsets, Spans, by_place, spans_to
from streamtable_spark.jobs.source import Source
from streamtable_spark.replay import SCHEMA, SUMMARY, GroupReplay, Program, Summary
from streamtable_spark.transforms.applied import applied, kept
from streamtable_spark.transforms.applied import letters as letters_of
from streamtable_spark.transforms.changelog import ROW, digests
from streamtable_spark.transforms.history_order import in_order
from streamtable_spark.transforms.layers import RECORD
from streamtable_spark.transforms.tables import GroupTable, events, read_values, values

Tables = Mapping[str, DataFrame]
"""Frames of rows, by the tables' names."""
Times = Mapping[int, Mapping[str, tuple[int, int]]]
Digests = dict[int, dict[str, Any]]
"""The number of `rows` of each partition, and their `digest`; see `changelog.digests`."""


@dataclass(frozen=True)
class Computed:
    """The tables of a group. Their intermediate frames are persisted: `clearCache` of the session's catalog drops it.

    Attributes:
        tables: The rows of each table, by its name: `partition`, `key`, `value` (bytes), and `row`, a struct with the field
            `value`, the column that compares two versions.
        counts: The number of `events`, and how many of them handlers do not get (`unfit`).
        times: The event time that each input of the graph has reached, and the watermark, by partition.
    """

    tables: Tables
    counts: Mapping[str, int]
    times: Times = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """The group whose tables are computed, and the history that they are computed from.

    Attributes:
        source: The group whose history is read.
        allow_missing: The inputs may begin later than at offset 0.
        lake: The folder of a lake that has the records that Kafka no longer has.
        earlier: The rebuild that the group's table comes from.
    """

    source: Source
    allow_missing: bool = False
    lake: str | None = None
    earlier: Manifest | None = None

    def spans(self, cluster: Cluster, ends: Mapping[str, Offsets]) -> tuple[Spans, Spans]:
        """Return the offset ranges to read: of inputs, retries and context, and of dead letters.

        Args:
            cluster: The Kafka cluster.
            ends: The end offsets of inputs, retries and joins; context is read to its current end.

        Raises:
            InputLost: Without a lake, the beginning of a topic is gone.
        """
        source = self.source
        # Read after the ends: the letters of records before these exist by now, and later letters do no harm.
        beside = cluster.stable_ends([source.dead_letters, *source.context])
        letter_ends = {source.dead_letters: beside.pop(source.dead_letters)}
        ends = {**beside, **ends}
        # What a lake lacks is known when it is opened.
        all_kept = {topic: dict.fromkeys(parts, 0) for topic, parts in ends.items()}
        starts = cluster.starts(ends) if self.lake is None else all_kept
        inputs = whole(ends, starts, allow_missing=self.allow_missing)
        # Of the scenarios that Spark computes itself only records that cannot be decoded fail, and those count nowhere.
        allowed = self.allow_missing or source.program is None
        letters = whole(letter_ends, cluster.starts(letter_ends), allow_missing=allowed)
        if self.earlier is None:
            return inputs, letters
        # Retries, loops and letters that went into an earlier rebuild belong to its table.
        before = {topic: parts for topic, parts in self.earlier.inputs.items() if topic not in source.read}
        return before | inputs, self.earlier.letters | letters

    def compute(
        self,
        session: SparkSession,
        cluster: Cluster,
        inputs: Spans,
        letters: Spans,
        now: float,
        watermarks: Mapping[int, Mapping[str, int]] | None = None,
    ) -> Computed:
        """Compute the tables from the offset ranges of `spans`, or from saved ones.

        Args:
            session: The Spark session.
            cluster: The Kafka cluster.
            inputs: The offset ranges of inputs, retries and all other topics that are needed.
            letters: The offset ranges of the dead letters.
            now: Seconds since 1970: the time that handlers see.
            watermarks: The minimum watermark of each partition at the end by input, in milliseconds.
        """
        source = self.source
        if self.lake is None:
            records = read(session, cluster.bootstrap_servers, inputs)
        else:
            lake = lake_history(session, self.lake, cluster)
            records = read_with(session, cluster, inputs, lake, allow_missing=self.allow_missing)
        beside = inputs.keys() - source.read
        loops = source.former_loops(beside)
        again = sorted(beside - {*loops})
        ends = _ends(inputs)
        until = ends if self.earlier is None else _ends(self.earlier.inputs)
        # A retry names the attempt that has failed before it, also when the letter of that has expired.
        sent = {topic: {number: span.end for number, span in inputs[topic].items()} for topic in again}
        failed = letters | spans_to(sent, cluster.starts(again))
        own = (source.retry, source.dead_letters)
        counts = {topic: ends if topic in own else until for topic in failed}
        set_aside = letters_of(read(session, cluster.bootstrap_servers, failed), counts)
        retries = {topic: counts[topic] for topic in again}
        if not isinstance(source.computes, Program):
            counted = applied(records, retries, source.inputs, set_aside)
            return _natively(source, source.computes, records, counted)
        changes = [source.topic(name) for name in source.computes.changes]
        handled = kept(records, retries, [*source.inputs, *loops, *changes], set_aside).select(*RECORD)
        tables = [*source.joins_read, *source.context]
        if whole_tables := {*tables}.difference(changes):
            handled = handled.unionByName(records.where(fn.col("topic").isin(*whole_tables)).select(*RECORD))
        partitions, answers = len(inputs[source.retry]), map(source.topic, source.computes.answers)
        ordered = in_order(handled, tables, source.context, partitions, list(answers))
        replay = GroupReplay(source.computes, partitions, now, source.names(beside), watermarks or {})
        return _by_handlers(session, replay, ordered)


def _ends(spans: Spans) -> dict[str, int]:
    return {str(place): span.end for place, span in by_place(spans)}


def live_rows(source: Source, held: DataFrame) -> DataFrame:
    """Return the rows that a changelog holds, with `row` as `Computed.tables` have it; null where the bytes are no row."""
    if isinstance(source.computes, Program):
        return held.withColumn("row", fn.struct("value"))
    return read_values(held, source.computes)


def _natively(source: Source, table: GroupTable, records: DataFrame, counted: DataFrame) -> Computed:
    inputs = {name: counted.where(counted["input"] == source.topic(name)) for name in table.inputs}
    context = {name: records.where(records["topic"] == source.topic(name)) for name in table.context}
    schemas = {**table.inputs, **table.context}
    by_topic = {name: events(sent, schemas[name]) for name, sent in {**inputs, **context}.items()}
    rows = table.rows(by_topic).persist()
    made = values(rows, table).persist()
    found = rows.agg(fn.sum("events").alias("events"), fn.sum("unfit").alias("unfit")).collect()[0]
    counts = {"events": found["events"] or 0, "unfit": found["unfit"] or 0}
    return Computed({TABLE: made}, counts)


def _by_handlers(session: SparkSession, replay: GroupReplay, ordered: DataFrame) -> Computed:
    made = session.createDataFrame(ordered.rdd.mapPartitions(replay), SCHEMA, verifySchema=False).persist()
    summaries = {
        row["partition"]: Summary.decode(bytes(row["value"]))
        for row in made.where(fn.col("name") == SUMMARY).collect()
    }
    rows = made.select("name", *ROW, fn.struct("value").alias("row"))
    return Computed(
        {name: rows.where(fn.col("name") == name).drop("name") for name in replay.program.tables},
        {"events": sum(each.events for each in summaries.values()), "unfit": 0},
        {number: each.times for number, each in summaries.items()},
    )


def digests_of(rows: DataFrame, partitions: int) -> Digests:
    """Return the digests of all partitions, also of those without rows."""
    empty = {number: {"rows": 0, "digest": "0" * 16} for number in range(partitions)}
    found = digests(rows).collect()
    return empty | {row["partition"]: {"rows": row["rows"], "digest": row["digest"]} for row in found}
