"""The reach of a URL: how many distinct users follow an author who has tweeted it.

Joining each tweet with each follower makes a row for every pair, many times more than there is to read. So followers
are gathered for each author first, as sets or as sketches, and the join makes some rows for each author and URL. A
set holds numbers, not names: these are a tenth as long, and the shuffle moves only them.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as fn

from streamtable_spark.transforms.event_time import timely

BUCKETS: Final = 16
"""The number of parts into which followers are divided, so that the set of a well-known author need not fit in one row."""
LG_K: Final = 12
"""The size of a sketch is 2 to the power of this: errors of about 1.6 %."""
SKETCHES: Final = ("hll", "theta")


def followers(follows: DataFrame) -> DataFrame:
    """Compute the followers of each author after all events: the latest event of a pair counts, a follow wins a tie.

    Args:
        follows: The silver table of follows.

    Returns:
        `author`, `follower`.
    """
    last = fn.max(fn.struct("event.at", "event.follows"))
    now = timely(follows).groupBy("event.author", "event.follower").agg(last.alias("last"))
    return now.where("last.follows").select("author", "follower")


def tweeted(tweets: DataFrame) -> DataFrame:
    """Compute the authors who tweet each URL: a tweet that was deleted never counts again.

    Args:
        tweets: The silver table of tweets.

    Returns:
        `author`, `url`, each pair once.
    """
    first = fn.min_by("event.url", fn.struct("partition", "offset"))
    deleted = fn.max(fn.col("event.url").isNull())
    each = (
        timely(tweets).groupBy("event.author", "event.id").agg(first.alias("url"), deleted.alias("deleted"))
    )
    return each.where(~fn.col("deleted")).select("author", "url").distinct()


def exact(tweeted: DataFrame, followers: DataFrame) -> DataFrame:
    """Return the number of distinct followers of each URL's authors.

    Args:
        tweeted: `author`, `url`, each pair once.
        followers: `author`, `follower`, each pair once.

    Returns:
        `url`, `reach`; 0 for a URL whose authors have no followers.
    """
    order = Window.partitionBy("bucket").orderBy("follower")
    sets = (
        followers.withColumn("bucket", fn.pmod(fn.xxhash64("follower"), fn.lit(BUCKETS)))
        .withColumn("number", fn.dense_rank().over(order))
        .groupBy("author", "bucket")
        .agg(fn.collect_list("number").alias("set"))
    )
    union = fn.array_distinct(fn.flatten(fn.collect_list("set")))
    parts = tweeted.join(sets, "author").groupBy("url", "bucket").agg(fn.size(union).alias("part"))
    counted = parts.groupBy("url").agg(fn.sum("part").alias("reach"))
    return _all_urls(tweeted, counted)


def sketched(tweeted: DataFrame, followers: DataFrame, kinds: Sequence[str] = SKETCHES) -> DataFrame:
    """Estimate the same number by sketches: one for each author, merged for each URL.

    Args:
        tweeted: The authors of each URL; see `exact`.
        followers: The followers of each author; see `exact`.
        kinds: The kinds of sketches. The live table of tweet-reach has HLL sketches of size 12, which merge with these.

    Returns:
        `url`, and a column of the name of each kind.
    """
    make = {"hll": fn.hll_sketch_agg("follower", LG_K), "theta": fn.theta_sketch_agg("follower", LG_K)}
    merge = {
        "hll": fn.hll_sketch_estimate(fn.hll_union_agg("hll")),
        "theta": fn.theta_sketch_estimate(fn.theta_union_agg("theta", LG_K)),
    }
    sketches = followers.groupBy("author").agg(*[make[kind].alias(kind) for kind in kinds])
    counted = (
        tweeted.join(sketches, "author").groupBy("url").agg(*[merge[kind].alias(kind) for kind in kinds])
    )
    return _all_urls(tweeted, counted)


def compared(tweeted: DataFrame, followers: DataFrame) -> DataFrame:
    """Return exact numbers and estimates side by side.

    Returns:
        `url`, `reach`, `hll`, `theta`, `hll_error`, `theta_error`: parts of the exact number, 0.01 is one too many in
        a hundred; null where that number is 0.
    """
    both = exact(tweeted, followers).join(sketched(tweeted, followers), "url")
    for name in SKETCHES:
        both = both.withColumn(
            f"{name}_error", fn.try_divide(fn.col(name) - fn.col("reach"), fn.col("reach"))
        )
    return both


def _all_urls(tweeted: DataFrame, counted: DataFrame) -> DataFrame:
    return tweeted.select("url").distinct().join(counted, "url", "left").na.fill(0)
