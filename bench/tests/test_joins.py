from dataclasses import replace
from pathlib import Path

import pytest
from bench import joins
from bench.measure import RowFailed
from bench.site import QUICK, Site

from localkafka.broker import Broker

TINY = replace(QUICK, handler=2_000, keys=500, tries=1)


def test_joins_are_measured_and_their_results_checked(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, TINY)
    rows = ("stream_join", "foreign_key_join")
    found = [figure for row in rows for figure in joins.joined(site, row)]
    assert [(figure.name, figure.unit, figure.error) for figure in found] == [
        (row, "records/s", None) for row in rows
    ]
    assert [
        (figure.name, figure.unit, figure.records) for figure in joins.waiting(site, "waiting_records")
    ] == [("waiting_records", "MB", 3_500)]
    both = joins.sides(site, "table_join")
    job = joins.job_of(site, "nothing", "table_join", both)
    site.create([f"{job.group}-out"], job.partitions)
    with pytest.raises(RowFailed, match=r"wrong: .* has 0 rows"):
        joins.check(site, job, both)
    site.delete("clicks-", "g")
