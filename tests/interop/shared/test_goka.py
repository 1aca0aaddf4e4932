"""Tables and streams are shared with Goka, both ways, on a real broker: with its own partitioner, and with ours."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.interop.shared.programs import GOKA, Run
from tests.interop.shared.shared import COUNTS, KEYS, Shared
from tests.system.bench import count, until

from streamtable import Group, Guarantee, Input, Json, Output, Persist, Stream, String, Table
from streamtable.base.partitioner import Partitioner

pytestmark = [pytest.mark.broker, pytest.mark.skipif(bool(GOKA.unfit), reason=GOKA.unfit)]


@dataclass(frozen=True)
class Both:
    """A running Goka program with a complete table of ours and a stream of ours."""

    run: Run
    partitioner: Partitioner
    prefix: str


@pytest.fixture(scope="module", params=["fnv1a", "murmur2"])
def both(shared: Shared, request: pytest.FixtureRequest) -> Iterator[Both]:
    partitioner: Partitioner = request.param
    prefix = shared.name(partitioner)
    events = Stream(f"{prefix}-events", String(), String(), partitioner)
    ours = Group(f"{prefix}-ours", Input(events, count), Persist(Json()))
    # Goka waits for a record at the very end of a table; a transaction ends with a marker.
    shared.keep(ours, Guarantee.AT_LEAST_ONCE)
    given = {
        "broker": shared.kafka.bootstrap_servers,
        "group": f"{prefix}-theirs",
        "input": shared.topic(f"{partitioner}-input"),
        "table": ours.table.name,
        "output": shared.topic(f"{partitioner}-output"),
        "partitioner": partitioner,
        "state": str(shared.folder / f"goka-{partitioner}"),
        "keys": ",".join(KEYS),
    }
    arguments = [f"-{name}={value}" for name, value in given.items()]
    # Streams may be written in transactions.
    forward = Stream(f"{prefix}-forward", String(), String(), partitioner)
    theirs = Stream(f"{prefix}-input", String(), String(), partitioner)
    forwarder: Group[str, None] = Group(
        f"{prefix}-forwarder",
        Input(forward, lambda ctx, event: ctx.emit(theirs, ctx.key, event)),
        Output(theirs),
    )
    with Run(GOKA, arguments, shared.folder / f"goka-{partitioner}.log") as run:
        shared.keep(forwarder)
        yield Both(run, partitioner, prefix)


def test_a_view_finds_each_row_of_a_table_of_goka(both: Both, shared: Shared) -> None:
    table = Table(f"{both.prefix}-theirs-table", String(), Json(), partitioner=both.partitioner)
    until(
        lambda: both.run.printed() is not None and shared.cluster.topics([table.name]),
        "Goka has made its table",
    )
    assert shared.rows_of(table, sum(COUNTS.values())) == COUNTS


def test_a_view_of_goka_finds_each_row_of_our_table(both: Both) -> None:
    until(lambda: both.run.printed().count("view ") >= len(KEYS), "Goka's view has printed its rows")
    lines = [line.split() for line in both.run.printed().splitlines() if line.startswith("view ")]
    assert {key: int(number) for _, key, number in lines} == COUNTS


def test_a_processor_of_goka_joins_our_stream_with_our_table(both: Both, shared: Shared) -> None:
    """It was emitted by a processor of ours, exactly once, to the partitions where Goka has the table's rows."""
    stream = Stream(f"{both.prefix}-output", String(), String(), both.partitioner)
    expected = {key: f"event {number - 1} joined {number}" for key, number in COUNTS.items()}
    until(lambda: both.run.printed() is not None and shared.values(stream) == expected, "all is joined")
