"""The rows about captured tables measure the same changes, and their tables are compared."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from bench import captures
from bench.envelopes import UNAVAILABLE, Envelopes, envelope
from bench.measure import RowFailed
from bench.programs.captures import Customer
from bench.site import QUICK, Site

from localkafka.broker import Broker
from streamtable_capture import Debezium


def test_an_envelope_is_read_as_a_change_with_its_position_and_lacks_the_long_value_at_times() -> None:
    created = Debezium(Customer).decode(envelope(9, 9, created=True))
    assert created.after == Customer(9, "name 9", True, 9, created.after.bio if created.after else None)
    assert (created.op, created.source.lsn) == ("c", 24_000_072)
    updated = msgspec.json.decode(envelope(19, 4, created=False))
    assert updated["after"]["bio"] == UNAVAILABLE


def test_both_tables_have_the_rows_of_the_last_changes_and_both_rates_are_measured(
    broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, replace(QUICK, handler=3_000, tries=1))
    try:
        figures = captures.capture(site)
    finally:
        site.delete("envelopes-")
    assert [figure.name for figure in figures] == list(captures.ROWS)
    assert all(figure.value is not None and figure.value > 0 for figure in figures)


def test_a_table_that_lacks_a_change_is_wrong(broker: Broker, tmp_path: Path) -> None:
    site = Site(broker.bootstrap_servers, tmp_path, QUICK)
    site.create(["captures-empty"], captures.PARTITIONS)
    try:
        with pytest.raises(RowFailed, match="has 0 rows"):
            captures.check(site, "captures-empty", Envelopes(10, 5))
    finally:
        site.delete("captures-empty")
