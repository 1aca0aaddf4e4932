"""The rows about sinks measure the same rows by hand and by the sink."""

from pathlib import Path

import pytest
from bench import sinks
from bench.site import QUICK, Site

from localkafka.errors import SetupError
from localstores.postgres import find_program


def test_both_tables_have_the_same_rows_and_both_rates_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        find_program("initdb")
    except SetupError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(sinks, "_BATCHES", 3)
    monkeypatch.setattr(sinks, "_WARM_UP", 1)
    monkeypatch.setattr(sinks, "_RECORDS", 200)
    site = Site("127.0.0.1:9", tmp_path, QUICK)
    figures = [*sinks.appends(site), *sinks.upserts(site), *sinks.iceberg(site)]
    assert [figure.name for figure in figures] == [*sinks.APPENDS, *sinks.UPSERTS, *sinks.ICEBERG]
    assert all(figure.value is not None and figure.value > 0 for figure in figures)
