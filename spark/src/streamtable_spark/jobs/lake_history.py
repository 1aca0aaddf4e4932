"""Read records that Kafka no longer has from the lake that the ETL has filled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost, OtherLake
from streamtable_spark.jobs.checkpoint import read_from, read_so_far
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.lake import BRONZE, Lake
from streamtable_spark.jobs.positions import Offsets, Place, Span, Spans, by_place, spans_to
from streamtable_spark.transforms.layers import RECORD


@dataclass(frozen=True)
class LakeHistory:
    """The records of some topics that a lake has.

    Attributes:
        raw: The raw records of the lake; maybe also some beyond `spans`.
        spans: The offset range that the lake has for certain, by topic and partition.
        missing: The offsets in these ranges that the ETL has continued without, by partition.
    """

    raw: DataFrame
    spans: Spans
    missing: Sequence[tuple[Place, Span]]


def lake_history(spark: SparkSession, folder: str, cluster: Cluster) -> LakeHistory:
    """Open a lake.

    Raises:
        ConfigurationError: There is no lake in the folder, or it is empty.
        OtherLake: The lake's topics are not this cluster's topics, or it is damaged.
    """
    lake, files = Lake(spark, folder), Files(spark)
    origin, ends = lake.known(), read_so_far(files, lake.checkpoint)
    if ends is None:
        raise ConfigurationError(f"--from {folder}: the lake is empty: run the ETL")
    there = cluster.topics(sorted(ends))
    for topic in sorted(ends):
        if origin.topics.get(topic) not in (None, there[topic].topic_id):
            raise OtherLake(
                f"the lake {folder} was made from an earlier topic {topic!r}, which was deleted and created again since"
            )
    raw = lake.tables(origin).read(BRONZE)
    starts = _starts(raw, read_from(files, lake.checkpoint), ends)
    missing = [(Place(topic, number), Span(start, end)) for topic, number, start, end in origin.missing]
    return LakeHistory(raw, spans_to(ends, starts), missing)


def _starts(
    raw: DataFrame, first: Mapping[str, Offsets], ends: Mapping[str, Offsets]
) -> Mapping[str, Offsets]:
    """Return the offset where the lake begins in each partition.

    Spark's checkpoint has it for the partitions of the first batch. Of topics and partitions that came later the first record
    is known: offsets before it that no committed record had count as missing. Without any, it begins at the end.
    """
    found: dict[str, Offsets] = {topic: {} for topic in ends}
    if later := [topic for topic, parts in ends.items() if parts.keys() - first.get(topic, {}).keys()]:
        of_later = raw.where(fn.col("topic").isin(*later)).groupBy("topic", "partition")
        for row in of_later.agg(fn.min("offset").alias("offset")).collect():
            found[row["topic"]][row["partition"]] = row["offset"]
    return {topic: {**parts, **found[topic], **first.get(topic, {})} for topic, parts in ends.items()}


def divided(needed: Span, lake: Span, start: int) -> tuple[Span, Span]:
    """Divide an offset range between the lake, which is read first, and Kafka. What neither has is in neither part.

    Args:
        needed: The range to read of a partition.
        lake: The range that the lake has.
        start: The first offset that Kafka has.
    """
    start = min(max(start, needed.start), needed.end)
    begin, end = max(lake.start, needed.start), min(lake.end, needed.end)
    if begin > start or end <= begin:  # Kafka begins before the lake
        return Span(needed.start, needed.start), Span(start, needed.end)
    return Span(begin, end), Span(max(start, end), needed.end)


def read_with(
    spark: SparkSession, cluster: Cluster, spans: Spans, lake: LakeHistory, *, allow_missing: bool
) -> DataFrame:
    """Return the committed records in these spans, from the lake as far as it has them, and from Kafka after that.

    Args:
        spark: The Spark session.
        cluster: The Kafka cluster.
        spans: The offset ranges to read.
        lake: The history in the lake.
        allow_missing: Continue without the records that neither has.

    Returns:
        The records, with the columns of `history.read`.

    Raises:
        InputLost: Some records are neither in the lake nor in Kafka.
    """
    starts = cluster.starts(spans)
    rest: Spans = {topic: {} for topic in spans}
    here = fn.lit(False)
    for place, needed in by_place(spans):
        topic, number = place
        has = lake.spans.get(topic, {}).get(number, Span(needed.start, needed.start))
        inside, behind = divided(needed, has, starts[topic][number])
        if inside.size + behind.size < needed.size and not allow_missing:
            raise InputLost(
                f"{place} begins at offset {starts[topic][number]} in Kafka, and the lake has it from {has.start} up to {has.end}: the other offsets of {needed.start} to {needed.end} are gone. Run the ETL "
                "more often than retention deletes, or give --allow-missing"
            )
        holes = [each for at, each in lake.missing if at == place and each.overlaps(needed)]
        if holes and not allow_missing:
            raise InputLost(
                f"{place}: the ETL has continued without offsets {holes[0].start} to {holes[0].end - 1}, which are gone. Give --allow-missing to do so too"
            )
        rest[topic][number] = behind
        of_lake = (fn.col("offset") >= inside.start) & (fn.col("offset") < inside.end)
        here = here | ((fn.col("topic") == topic) & (fn.col("partition") == number) & of_lake)
    return lake.raw.where(here).select(*RECORD).unionByName(read(spark, cluster.bootstrap_servers, rest))
