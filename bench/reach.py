"""The row about tweet reach: both stages, a process of each, under a steady load."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from bench.figures import Figure
from bench.job import Job
from bench.live import KEYS
from bench.measure import RowFailed
from bench.programs.reach_load import FOLLOWERS_A_TWEET
from bench.site import GROUP_TOPICS, Site
from bench.streams import RATE

from contracts.records import REACH
from localstores.redis import RedisServer
from streamtable import Avro
from tweet_reach import topics

TWEETS_RATE = 1_100
LOAD_RATE = TWEETS_RATE * (1 + FOLLOWERS_A_TWEET)
BATCH_MS = 1000
ALLOWED_SECONDS = 3.0
"""The allowed delay of the table behind the load: a second for a batch of each stage, and another to process them."""


def reach(site: Site) -> list[Figure]:
    """Measure with embedded rows, the service's default; see `_kept_up`."""
    return [_kept_up(site, "reach", "")]


def reach_redis(site: Site) -> list[Figure]:
    """Measure with rows in Redis."""
    with RedisServer(site.state(site.name("reach-redis"))) as server:
        return [_kept_up(site, "reach_redis", server.url)]


def reach_memory(site: Site) -> list[Figure]:
    """Measure with rows in memory only: the cost of the stages by themselves."""
    return [_kept_up(site, "reach_memory", "memory:")]


def _kept_up(site: Site, row: str, store: str) -> Figure:
    """Measure the records per second that both stages keep up with, of 22,000 followers and 1,100 tweets per second.

    The result is the load's rate if they finish within three seconds of its end, the allowed delay of the table. Each
    further second is added to their time.
    """
    job = replace(_job(site), store=store)
    sources = [topics.TWEETS.name, topics.FOLLOWS.name]
    group = job.group
    work, facts, rebuilds = (make(group).name for make in (topics.work, topics.facts, topics.rebuilds))
    with ExitStack() as opened:
        first, second = (
            opened.enter_context(
                site.start(
                    "reach_stage",
                    replace(job, handler=stage, state_dir=str(site.state(f"{group}-{stage}"))),
                    f"{row}-{stage}",
                )
            )
            for stage in ("authors", "urls")
        )
        first.mark("ready")
        second.mark("ready")
        load = opened.enter_context(site.start("reach_load", job, f"{row}-load"))
        begun, ended = load.mark("first"), load.mark("last")
        expected = load.result()["reach"]
        load.end()
        # In this order: the output of the first stage is in the facts topic when its input is committed.
        for stage, name, read, markers in (
            (first, "authors", sources, 0),
            (first, "authors", [work], 1),
            (second, "urls", [facts, rebuilds], 1),
        ):
            stage.wait(
                partial(_caught_up, site, f"{group}-{name}", read, markers),
                f"has not caught up with {read}",
            )
        done = second.now()
        cpu = first.now().cpu + done.cpu
        first.stop()
        second.stop()
    check(site, group, expected)
    site.forget(group)
    site.delete(*sources)
    late = max(0.0, done.time - ended.time - ALLOWED_SECONDS)
    return Figure(
        row,
        job.records / (ended.time - begun.time + late),
        RATE,
        cpu_seconds=cpu,
        rss_mb=first.rss_mb + second.rss_mb,
        records=job.records,
    )


def _caught_up(site: Site, group: str, read: Sequence[str], markers: int) -> bool:
    return not site.behind(group, read, markers)


def check(site: Site, group: str, expected: int) -> None:
    """Raise `RowFailed` unless the reaches in the table add up."""
    decode = Avro(REACH).decode
    rows = site.last_values(topics.changes(group).name).values()
    total = sum(decode(row)["reach"] for row in rows if row)
    if total != expected:
        raise RowFailed(f"wrong: the reaches add up to {total}, not to {expected}")


def _job(site: Site) -> Job:
    group = site.name("reach")
    made = [topics.facts(group).name, topics.work(group).name, topics.rebuilds(group).name]
    own = [f"{group}-{stage}-{rest}" for stage in ("authors", "urls") for rest in GROUP_TOPICS[1:]]
    site.create([topics.TWEETS.name, topics.FOLLOWS.name, *made, *own], 4)
    tables = [topics.changes(group).name, f"{group}-authors-table", f"{group}-urls-table"]
    site.create(tables, 4, {"cleanup.policy": "compact"})
    records = int(LOAD_RATE * site.sizes.live_seconds)
    return Job(site.broker, group=group, records=records, commit_ms=BATCH_MS, rate=LOAD_RATE, keys=KEYS)
