from pathlib import Path

import pytest
from bench.clicks import Clicks
from bench.job import Job
from bench.measure import RowFailed
from bench.site import Site, Sizes

from localkafka.broker import Broker
from streamtable import Avro


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker.bootstrap_servers, tmp_path, Sizes())


def test_counts_that_do_not_add_up_to_the_records_fail_the_row(site: Site) -> None:
    table, decode = site.table(50), Avro("long").decode
    site.check_counts(table, Job(site.broker, records=50), decode)
    with pytest.raises(RowFailed, match="add up to 50, not to 51"):
        site.check_counts(table, Job(site.broker, records=51), decode)
    site.delete(table)


def test_a_topic_is_filled_once_and_again_after_it_was_deleted(site: Site) -> None:
    clicks = Clicks(100, 10)
    topic = site.clicks(clicks)
    assert site.clicks(clicks) == topic
    site.delete(topic)
    assert site.clicks(clicks) == topic
    site.delete(topic)


def test_groups_have_names_and_folders_of_their_own_and_leave_nothing(site: Site) -> None:
    first, second = site.group("count_keys"), site.group("count_keys")
    assert first != second
    assert site.state(first) != site.state(second)
    folder = site.state(first)
    site.forget(first)
    assert not folder.exists()
    site.delete(f"{second}-")
