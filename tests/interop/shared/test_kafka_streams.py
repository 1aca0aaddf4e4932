"""Tables are shared with Kafka Streams, both ways, on a real broker."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.interop.shared.programs import KAFKA_STREAMS, Run
from tests.interop.shared.shared import COUNTS, KEYS, PARTITIONS, Shared
from tests.system.bench import count, until

from streamtable import Avro, Context, Group, Input, Join, Long, Output, Persist, Plain, String, Table

pytestmark = [
    pytest.mark.broker,
    pytest.mark.skipif(bool(KAFKA_STREAMS.unfit), reason=KAFKA_STREAMS.unfit),
]

ROW = '{"type": "record", "name": "Count", "fields": [{"name": "count", "type": "long"}]}'
PLAIN: Avro[dict[str, int]] = Avro(ROW, Plain())


def count_in_record(ctx: Context[str, dict[str, int]], event: str) -> None:
    ctx.set({"count": (ctx.value or {"count": 0})["count"] + 1})


@pytest.fixture(scope="module")
def program(shared: Shared) -> Iterator[Run]:
    """A running Kafka Streams program with two complete tables of ours."""
    for name, handler, codec in (
        ("visit-count", count, Long()),
        ("visit-record", count_in_record, PLAIN),
    ):
        events = shared.stream(f"{name}-in")
        shared.keep(Group(shared.name(name), Input(events, handler), Persist(codec)))
    for name in ("orders", "questions", "answers"):
        shared.topic(name)
    for name in ("orders-per-user", "orders-in-avro"):
        shared.topic(name, **{"cleanup.policy": "compact"})
    application = shared.name("").removesuffix("-")
    arguments = [shared.kafka.bootstrap_servers, application, str(shared.folder / "theirs"), ROW]
    with Run(KAFKA_STREAMS, arguments, shared.folder / "kafka-streams.log") as run:
        shared.emit(shared.stream("orders"), COUNTS)
        yield run


def test_a_view_finds_each_row_of_a_table_of_longs(program: Run, shared: Shared) -> None:
    table = Table(shared.name("orders-per-user"), String(), Long())
    assert shared.rows_of(table, sum(COUNTS.values())) == COUNTS
    program.printed()


def test_a_view_finds_each_row_of_a_table_of_plain_avro(program: Run, shared: Shared) -> None:
    table = Table(shared.name("orders-in-avro"), String(), PLAIN)
    rows = shared.rows_of(table, sum(COUNTS.values()))
    assert {key: row["count"] for key, row in rows.items()} == COUNTS
    program.printed()


def test_our_processor_joins_its_stream_with_a_table_of_kafka_streams(program: Run, shared: Shared) -> None:
    table = Table(shared.name("orders-per-user"), String(), Long())
    shared.rows_of(table, sum(COUNTS.values()))  # it is complete
    answers = shared.stream("joined")

    def join(ctx: Context[str, Any], event: str) -> None:
        number = ctx.join(table)
        ctx.emit(answers, ctx.key, f"{event} {number}")

    group: Group[str, Any] = Group(
        shared.name("joiner"), Input(shared.stream("clicks"), join), Join(table), Output(answers)
    )
    shared.create(group, PARTITIONS)
    shared.emit(group.inputs[0].stream, dict.fromkeys(KEYS, 1))
    shared.work_off(group)
    assert shared.values(answers) == {key: f"event 0 {number}" for key, number in COUNTS.items()}
    program.printed()


def test_kafka_streams_joins_its_stream_with_our_tables(program: Run, shared: Shared) -> None:
    """Read our table as a KTable co-partitioned with its stream, which takes the same partitioner, and as a GlobalKTable."""
    shared.emit(shared.stream("questions"), dict.fromkeys(KEYS, 1))
    answers = shared.stream("answers")
    until(
        lambda: program.printed() is not None and len(shared.values(answers)) == len(KEYS), "all are answered"
    )
    assert shared.values(answers) == {key: f"event 0 {number} {number}" for key, number in COUNTS.items()}
