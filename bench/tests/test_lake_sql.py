from pathlib import Path

import duckdb
import pytest
from bench.programs.lake_sql import clicks_query, make, reach_query


@pytest.fixture
def engine() -> duckdb.DuckDBPyConnection:
    return duckdb.connect(config={"threads": 1})


def parquet(engine: duckdb.DuckDBPyConnection, file: Path, rows: str) -> None:
    file.parent.mkdir(parents=True)
    engine.execute(f"COPY ({rows}) TO '{file}' (FORMAT parquet)")


def test_clicks_of_all_days_are_counted(engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    for day in ("2026-01-01", "2026-01-02"):
        rows = "SELECT 'user-' || i % 3 AS key FROM range(10) r(i)"
        parquet(engine, tmp_path / "silver" / "user-clicks" / f"day={day}" / "a.parquet", rows)
    assert engine.execute(clicks_query(tmp_path)).fetchone() == (20, 20)


def test_a_follower_of_two_authors_of_a_url_counts_once_and_one_who_left_not_at_all(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    parquet(
        engine,
        tmp_path / "silver" / "twitter-followers" / "batch=0" / "a.parquet",
        """SELECT {'author': a, 'follower': f, 'follows': y, 'at': t} AS event FROM (VALUES
        ('ann', 'cy', true, 1), ('bob', 'cy', true, 2), ('ann', 'dee', true, 3), ('ann', 'dee', false, 4)) v(a, f, y, t)""",
    )
    parquet(
        engine,
        tmp_path / "silver" / "tweets" / "batch=0" / "a.parquet",
        """SELECT 0 AS partition, n AS "offset", {'id': i, 'author': a, 'url': u, 'at': n} AS event FROM (VALUES
        (1, '1', 'ann', 'x'), (2, '1', 'bob', 'x'), (3, '2', 'bob', 'y'), (4, '2', 'bob', NULL)) v(n, i, a, u)""",
    )
    assert engine.execute(reach_query(tmp_path)).fetchone() == (1, 2)


def test_tweets_and_follows_are_always_the_same_and_stars_have_more_followers(
    engine: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    answers = []
    for name in ("one", "two"):
        make(engine, tmp_path / name, 35_000)
        answers.append(engine.execute(reach_query(tmp_path / name)).fetchone())
    assert answers[0] == answers[1]
    files = tmp_path / "one" / "silver" / "twitter-followers" / "*" / "*.parquet"
    of_author = "SELECT count(*) FROM read_parquet(?) WHERE event.author = ?"
    star, other = (engine.execute(of_author, [str(files), f"author-{n}"]).fetchone() for n in (0, 99))
    assert star is not None
    assert other is not None
    assert star[0] > 5 * other[0] > 0
