"""The same queries on the same files with DuckDB, to compare another engine on one machine and to check the results.

It also generates the tweets and followers whose reach is queried.
"""

import json
import os
import time
from pathlib import Path

import duckdb
from bench.job import Job
from bench.programs.marks import tell

FOLLOWERS = 500_000
FOLLOWERS_OF_AN_AUTHOR = 350
TWEETS_OF_A_URL = 20
AT = 1_700_000_000_000

CLICKS = "SELECT sum(clicks), sum(clicks) FROM (SELECT key, count(*) AS clicks FROM read_parquet('{files}') GROUP BY key)"

EVENTS = """
SELECT count(*), bit_xor(hash(partition, "offset", timestamp, key, event, repeat)) FROM read_parquet('{files}')
"""
"""The number of rows in silver, and a digest that is the same for the same rows in any order."""

REACH = """
WITH followers AS (
    SELECT event.author AS author, event.follower AS follower FROM read_parquet('{follows}')
    GROUP BY ALL HAVING arg_max(event.follows, event.at)
), first_tweets AS (
    SELECT event.author AS author, arg_min(event.url, (partition, "offset")) AS url FROM read_parquet('{tweets}')
    GROUP BY event.author, event.id HAVING count(*) = count(event.url)
), tweeted AS (SELECT DISTINCT author, url FROM first_tweets),
reached AS (SELECT url, count(DISTINCT follower) AS reach FROM tweeted JOIN followers USING (author) GROUP BY url)
SELECT sum(reach), (SELECT count(*) FROM tweeted JOIN followers USING (author)) FROM reached
"""
"""The sum of all reaches, and the pairs of a tweet and a follower that are behind them."""

FOLLOWS_TABLE = """
SELECT 0 AS partition, i AS "offset", make_timestamptz(1000 * ({at} + i)) AS timestamp, {{
    'author': 'author-' || floor({authors} * pow(hash(i) / 18446744073709551616.0, 2))::BIGINT,
    'follower': 'user-' || hash(i, 1) % {followers}, 'follows': true, 'at': {at} + i
}} AS event FROM range({edges}) r(i)
"""
"""Popular authors have more followers: the n-th author's number is proportional to sqrt(1/n)."""

TWEETS_TABLE = """
SELECT 0 AS partition, i AS "offset", make_timestamptz(1000 * ({at} + i)) AS timestamp, {{
    'id': 'tweet-' || i, 'author': 'author-' || hash(i, 2) % {authors}, 'url': 'https://example.org/' || hash(i, 3) % {urls},
    'at': {at} + i
}} AS event FROM range({tweets}) r(i)
"""


def make(engine: duckdb.DuckDBPyConnection, lake: Path, edges: int) -> None:
    """Make a lake of plain Parquet with this many follows and a twentieth as many tweets: 35 million pairs for 2 million."""
    tweets = max(TWEETS_OF_A_URL, edges // 20)
    sizes = {
        "edges": edges,
        "tweets": tweets,
        "authors": max(1, edges // FOLLOWERS_OF_AN_AUTHOR),
        "followers": FOLLOWERS,
        "urls": tweets // TWEETS_OF_A_URL,
        "at": AT,
    }
    for topic, query in (("twitter-followers", FOLLOWS_TABLE), ("tweets", TWEETS_TABLE)):
        folder = lake / "silver" / topic / "batch=0"
        folder.mkdir(parents=True)
        engine.execute(f"COPY ({query.format(**sizes)}) TO '{folder / 'part.parquet'}' (FORMAT parquet)")
        (folder / "_SUCCESS").touch()  # like Spark's marker of a complete batch
    (lake / "origin.json").write_text(json.dumps({"lake": "bench", "format": "parquet", "topics": {}}))


def clicks_query(lake: Path, query: str = CLICKS) -> str:
    return query.format(files=lake / "silver" / "user-clicks" / "day=*" / "*.parquet")


def reach_query(lake: Path) -> str:
    follows, tweets = (
        lake / "silver" / topic / "*" / "*.parquet" for topic in ("twitter-followers", "tweets")
    )
    return REACH.format(follows=follows, tweets=tweets)


def main() -> None:
    job = Job.from_environment(os.environ)
    lake = Path(job.state_dir)
    engine = duckdb.connect(config={"threads": job.clients})
    if job.handler == "make":
        make(engine, lake, job.records)
        return
    queries = {"clicks": clicks_query(lake), "events": clicks_query(lake, EVENTS), "reach": reach_query(lake)}
    began = time.time()
    found = engine.execute(queries[job.handler]).fetchone()
    assert found is not None
    tell({"total": int(found[0]), "pairs": int(found[1]), "seconds": time.time() - began})


if __name__ == "__main__":
    main()
