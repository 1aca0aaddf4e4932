"""Records of topics between exact offsets, as data frames, and whether all of them are still there."""

import json
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader

from streamtable.base.types import Committed
from streamtable.tables.seen import recreated
from streamtable_spark.errors import InputLost
from streamtable_spark.jobs.cluster import Topics
from streamtable_spark.jobs.kafka import Kafka
from streamtable_spark.jobs.positions import Offsets, Place, Spans, by_place, spans_to
from streamtable_spark.transforms.layers import RECORD

_SCHEMA = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary, headers array<struct<key: string, value: binary>>"


def read(spark: SparkSession, bootstrap_servers: str, spans: Spans) -> DataFrame:
    """Return the committed records in these spans; records of aborted transactions are skipped.

    Returns:
        `topic`, `partition`, `offset`, `timestamp`, `key`, `value`, `headers`.
    """
    requested: Spans = {}
    for place, span in by_place(spans):
        if span.size:
            requested.setdefault(place.topic, {})[place.partition] = span
    if not requested:
        # By the condition Spark knows that the frame is empty, and skips joins with it.
        return spark.createDataFrame([], _SCHEMA).where("false")

    def offsets(which: str) -> str:
        ends = {
            topic: {n: getattr(span, which) for n, span in parts.items()}
            for topic, parts in requested.items()
        }
        return json.dumps(ends)

    reader = (
        spark.read.format("kafka")
        .options(**Kafka(bootstrap_servers).spark_source())
        .option("assign", json.dumps({topic: sorted(parts) for topic, parts in requested.items()}))
        .option("startingOffsets", offsets("start"))
        .option("endingOffsets", offsets("end"))
        .option("failOnDataLoss", "true")
        .option("includeHeaders", "true")
    )
    return reader.load().select(*RECORD)


def stream(
    spark: SparkSession, bootstrap_servers: str, topics: Sequence[str], offsets_max: int
) -> DataStreamReader:
    """Return what reads all committed records of topics as a stream of batches, each of at most so many offsets."""
    return (
        spark.readStream.format("kafka")
        .options(**Kafka(bootstrap_servers).spark_source())
        .option("subscribe", ",".join(topics))
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets_max)
    )


def whole(ends: Mapping[str, Offsets], starts: Mapping[str, Offsets], *, allow_missing: bool) -> Spans:
    """Return the spans from each partition's first record to these ends.

    Args:
        ends: The end offsets of all partitions.
        starts: The first offsets that are still in Kafka.
        allow_missing: Continue even if the first records are gone.

    Raises:
        InputLost: The first records are gone.
    """
    gone = [
        (place, offset)
        for place, offset in by_place(starts)
        if offset > 0 and ends[place.topic][place.partition] > 0
    ]
    if gone and not allow_missing:
        place, offset = gone[0]
        others = f", and so it is in {len(gone) - 1} other partitions" if len(gone) > 1 else ""
        raise InputLost(
            f"{place} begins at offset {offset}: what was before is gone (retention){others}; a table of what is left would differ. Give --allow-missing to accept that"
        )
    return spans_to(ends, starts)


def refuse_compacted(topics: Topics, *, allow_missing: bool) -> None:
    """Check that Kafka keeps all events of these topics until their retention ends.

    Args:
        topics: The topics, by name.
        allow_missing: Continue with the events that there are.

    Raises:
        InputLost: A topic is compacted, which deletes an event once a later one has the same key.
    """
    compacted = sorted(name for name, each in topics.items() if "compact" in each.config["cleanup.policy"])
    if compacted and not allow_missing:
        raise InputLost(
            f"{compacted[0]} is compacted: of events with the same key Kafka keeps the last ones only, and a table of these would lack the others. Give --allow-missing to accept that"
        )


def refuse_recreated(
    group: str, committed: Mapping[Place, Committed | None], topics: Topics, advice: str
) -> None:
    """Check that the topics that a group has read were not deleted and created again.

    Args:
        group: The name of the group, for messages.
        committed: Its offsets, of all partitions of its inputs.
        topics: Its inputs, by name.
        advice: The remedy, for the message.

    Raises:
        InputLost: An input was deleted and created again.
    """
    there = {place: each for place, each in committed.items() if each is not None}
    if found := recreated(there, {name: each.topic_id for name, each in topics.items()}):
        raise InputLost(
            f"group {group!r}: {'; '.join(map(str, found.values()))}. What its table was made of is gone. {advice}"
        )
