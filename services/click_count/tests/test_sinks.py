"""The sink of closed minutes: each is in the committed files once, and SQL reads it."""

from pathlib import Path

import duckdb

from click_count.sinks import minutes_out
from click_count.windows import CLICK_MINUTES
from streamtable.flow import Windowed
from streamtable_sinks.parquet import committed_files
from streamtable_testing import Tester

NOON_MS = 1_700_000_040_000


def test_the_closed_minutes_of_users_are_rows_of_parquet_files(tester: Tester, tmp_path: Path) -> None:
    tester.run(minutes_out(str(tmp_path)), partitions=2)
    for minute, clicks in enumerate((5, 3)):
        start = NOON_MS + minute * 60_000
        tester.emit(CLICK_MINUTES, Windowed("alice", start, start + 60_000), clicks)
        tester.advance(11)
    files = [str(tmp_path / each) for each in committed_files(tmp_path)]
    rows = duckdb.read_parquet(files).order("minute").project("user, epoch_ms(minute), clicks").fetchall()
    assert rows == [("alice", NOON_MS, 5), ("alice", NOON_MS + 60_000, 3)]
