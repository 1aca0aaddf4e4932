"""Read records that Kafka no longer has from the lake that the ETL has filled."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.errors import ConfigurationError, InputLost, OtherLake
from streamtable_spark.jobs.checkpoint import read_from, read_so_far
from streamtable_spark.jobs.cluster import Cluster
from streamtable_spark.jobs.files import Files
from streamtable_spark.jobs.history import read
from streamtable_spark.jobs.lake import BRONZE, Lake
from streamtable_spark.jobs.positions import Offsets, Place, Span, Spans
from streamtable_spark.transforms.layers import RECORD


@dataclass(frozen=True)
class LakeHistory:
    """The records of some topics that a lake has.

    Attributes:
        raw: The raw records of the lake; maybe also some at or beyond `ends`.
        starts: The first offset that the lake has of each partition.
        ends: The offset after the last one that the lake has for certain.
    """

    raw: DataFrame
    starts: Mapping[str, Offsets]
    ends: Mapping[str, Offsets]


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
    there = cluster.topic_ids(sorted(ends))
    for topic in sorted(ends):
        if there[topic] != origin.topics.get(topic, there[topic]):
            raise OtherLake(
                f"the lake {folder} was made from an earlier topic {topic!r}, which was deleted and created again: its "
                "offsets say nothing about the present one"
            )
    return LakeHistory(lake.tables(origin).read(BRONZE), read_from(files, lake.checkpoint), ends)


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
    rest: Spans = {}
    here = fn.lit(False)
    for topic, parts in spans.items():
        rest[topic] = {}
        for number, span in sorted(parts.items()):
            low = lake.starts.get(topic, {}).get(number)
            high = min(lake.ends.get(topic, {}).get(number, 0), span.end)
            if low is None or low > span.start or high <= span.start:
                high = span.start  # of no use here
            start = starts[topic][number]
            if start > high < span.end and not allow_missing:
                raise InputLost(
                    f"{Place(topic, number)} begins at offset {start} in Kafka, and the lake has it up to "
                    f"{high}: what is between is gone. Run the ETL more often than retention "
                    "deletes, or give --allow-missing"
                )
            rest[topic][number] = Span(min(max(high, start), span.end), span.end)
            inside = (fn.col("offset") >= span.start) & (fn.col("offset") < high)
            here = here | ((fn.col("topic") == topic) & (fn.col("partition") == number) & inside)
    return lake.raw.where(here).select(*RECORD).unionByName(read(spark, cluster.bootstrap_servers, rest))
