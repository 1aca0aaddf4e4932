from dataclasses import replace
from pathlib import Path

import pytest
from bench.clicks import fill_table
from bench.measure import RowFailed
from bench.programs.reach_load import FOLLOWERS_A_TWEET, events, reach_of_all
from bench.reach import check, reach
from bench.site import Site
from bench.tests.test_bench import TINY

from contracts.records import REACH, Follow, Reach, Tweet
from localkafka.broker import Broker
from streamtable import Avro


def test_both_stages_keep_up_with_a_small_load_and_their_reaches_are_right(
    broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, replace(TINY, live_seconds=0.1))
    (figure,) = reach(site)
    assert figure.value
    assert figure.records == 2310


def test_reaches_that_do_not_add_up_fail_the_row(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    row = Reach(reach=7, estimate=7.0, sketch=b"", tweets=1, authors=1, top=[])
    site.create(["made-up-table"], 4)
    fill_table(site.broker, "made-up-table", 2, Avro(REACH).encode(row))
    check(site, "made-up", 14)
    with pytest.raises(RowFailed, match="add up to 14, not to 15"):
        check(site, "made-up", 15)
    site.delete("made-up")


def test_of_each_21_events_one_is_a_tweet_and_they_are_always_the_same() -> None:
    made = list(events(2100, 100))
    assert sum("follower" not in each for each in made) * (FOLLOWERS_A_TWEET + 1) == 2100
    assert made == list(events(2100, 100))


def test_the_expected_reach_counts_each_follower_of_a_url_once_and_none_who_left() -> None:
    made: list[Tweet | Follow] = [
        *(Tweet(id="1", author=author, url="u", text="", at=0) for author in ("ann", "bob")),
        *(Follow(id="2", author=author, follower="cy", follows=True, at=1) for author in ("ann", "bob")),
        Follow(id="3", author="ann", follower="dee", follows=True, at=2),
        Follow(id="4", author="ann", follower="dee", follows=False, at=3),
    ]
    assert reach_of_all(made) == 1
