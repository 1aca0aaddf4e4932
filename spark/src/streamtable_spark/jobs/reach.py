"""Compute the reach of all URLs in a lake exactly and by sketches, and report the cost and the error of each way.

python -m streamtable_spark.jobs.reach --lake FOLDER
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

from streamtable_spark.demo import FOLLOWS, TWEETS
from streamtable_spark.errors import ConfigurationError
from streamtable_spark.jobs.job_args import ended, job_parser, session_of
from streamtable_spark.jobs.lake import Lake
from streamtable_spark.jobs.run_report import reported_run
from streamtable_spark.transforms import reach

EXACT: Final = "exact"
WAYS: Final[Mapping[str, Callable[[DataFrame, DataFrame], DataFrame]]] = {
    EXACT: reach.exact,
    **{kind: partial(reach.sketched, kinds=(kind,)) for kind in reach.SKETCHES},
}
STAGES: Final = ("reading the lake", *WAYS)


@dataclass(frozen=True)
class Way:
    """The result of one way to compute reach.

    Attributes:
        name: `exact`, or the kind of sketch.
        seconds: The duration, from tweets and followers that were read already.
        urls: The number of URLs.
        reach: The sum over all URLs.
        mean_error: The mean absolute relative error of a URL: 0.01 is one in a hundred. URLs with reach 0 are skipped;
            None if there are no others.
        worst_error: The largest relative error of a URL.
    """

    name: str
    seconds: float
    urls: int
    reach: int
    mean_error: float | None
    worst_error: float | None


def compare(
    tweeted: DataFrame,
    followers: DataFrame,
    clock: Callable[[], float],
    begun: Callable[[str], None] = lambda _: None,
) -> list[Way]:
    """Compute reach in each way, one after another, the exact one first.

    Args:
        tweeted: `author`, `url`, each pair once.
        followers: `author`, `follower`, each pair once.
        clock: A monotonic clock in seconds.
        begun: Called with the name of each way when it begins.
    """
    read = [frame.persist() for frame in (tweeted, followers)]
    found: dict[str, DataFrame] = {}
    ways: list[Way] = []
    try:
        for frame in read:
            frame.count()
        for name, compute in WAYS.items():
            begun(name)
            began = clock()
            found[name] = compute(*read).toDF("url", "found").persist()
            found[name].count()
            ways.append(_way(name, clock() - began, found[name], found[EXACT]))
    finally:
        for frame in [*found.values(), *read]:
            frame.unpersist()
    return ways


def _way(name: str, seconds: float, found: DataFrame, exact: DataFrame) -> Way:
    both = found.join(exact.withColumnRenamed("found", "exact"), "url")
    error = fn.abs(fn.try_divide(fn.col("found") - fn.col("exact"), fn.col("exact")))
    row = both.agg(
        fn.count("*").alias("urls"),
        fn.sum("found").alias("reach"),
        fn.avg(error).alias("mean"),
        fn.max(error).alias("worst"),
    ).collect()[0]
    return Way(name, round(seconds, 1), row["urls"], row["reach"] or 0, row["mean"], row["worst"])


def of_lake(spark: SparkSession, folder: str) -> tuple[DataFrame, DataFrame]:
    """`tweeted` and `followers` of a lake, see `compare`.

    Raises:
        ConfigurationError: There is no lake, or it has no tweets, or no follows.
    """
    lake = Lake(spark, folder)
    tables = lake.tables(lake.known())
    for topic in (TWEETS, FOLLOWS):
        if not tables.exists(f"silver/{topic}"):
            raise ConfigurationError(
                f"the lake {folder} has nothing of {topic}: run the ETL with --graph streamtable_spark.demo:LAKE"
            )
    return reach.tweeted(tables.read(f"silver/{TWEETS}")), reach.followers(tables.read(f"silver/{FOLLOWS}"))


def main(argv: Sequence[str]) -> int:
    """Run the job with these arguments, and return its exit status."""
    about = "Compute reach exactly and by sketches, side by side."
    parser = job_parser("reach", about, kafka=False, lake="folder of a lake that the ETL has filled")
    found = parser.parse_args(argv)
    spark = session_of(found)()
    with reported_run(found, STAGES) as progress:
        progress.stage(STAGES[0])
        ways = compare(*of_lake(spark, found.lake), time.monotonic, progress.stage)
        progress.done(
            summary=f"{ways[0].urls} URLs, whose reaches add up to {ways[0].reach}", urls=ways[0].urls
        )
    for way in ways:
        print(json.dumps(asdict(way)))  # noqa: T201 - a command line
    return 0


if __name__ == "__main__":
    sys.exit(ended(main, sys.argv[1:]))
