"""A replay makes of a partition's history the rows that the group itself has made."""

import json
from collections.abc import Mapping
from datetime import timedelta
from itertools import groupby
from random import Random
from typing import Any

import pytest

from microbatch import Batch, MicroBatch, Rows, Send
from streamtable import (
    Avro,
    Context,
    EventTime,
    Group,
    Input,
    Join,
    Json,
    Long,
    Lookup,
    Loop,
    Once,
    OnError,
    Output,
    Persist,
    State,
    Stream,
    String,
    Table,
    Timer,
)
from streamtable.errors import ConfigurationError, HandlerFailed
from streamtable.flow import Flow, Tumbling
from streamtable_testing import Tester
from streamtable_testing.replay import Replay
from streamtable_testing.topic import InMemoryMessage

PARTITIONS = 3
NOW = 1_700_000_000.0
ORDERS: Stream[str, Any] = Stream("orders", String(), Json())
PAYMENTS: Stream[str, Any] = Stream("payments", String(), Json())
GREETINGS: Stream[str, Any] = Stream("accounts-loop", String(), Json())
OUT: Stream[str, Any] = Stream("out", String(), Json())
LIMITS: Table[str, int] = Table("limits-table", String(), Long())
COUNTRIES: Table[str, str] = Table("countries-table", String(), String())
OPEN = State("open", key=String(), value=Json())


def row_of(ctx: Context[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = ctx.value or {"orders": 0, "paid": 0, "limit": 0, "reminded": 0, "greeted": 0}
    return row


def order(ctx: Context[str, Any], event: Any) -> None:
    if event["cents"] < 0:
        ctx.fail("an order of nothing")
    ctx.table(OPEN).put(event["number"], event["cents"])
    row = row_of(ctx)
    country, limit = ctx.lookup(COUNTRIES, event["country"]), ctx.join(LIMITS)
    ctx.set({**row, "orders": row["orders"] + 1, "limit": limit or 0, "country": country})
    ctx.timers.at(REMIND, event["at"] + 60_000, event["number"], event["number"])
    ctx.loopback(GREETINGS, event["friend"], 1)
    ctx.emit(OUT, ctx.key, event)


def pay(ctx: Context[str, Any], event: Any) -> None:
    cents = ctx.table(OPEN).get(event["number"])
    if cents is not None:
        ctx.table(OPEN).delete(event["number"])
        ctx.timers.cancel(REMIND, event["number"])
        row = row_of(ctx)
        ctx.set({**row, "paid": row["paid"] + cents})


def remind(ctx: Context[str, Any], number: str) -> None:
    row = row_of(ctx)
    ctx.set({**row, "reminded": row["reminded"] + 1, "last": number})


def greet(ctx: Context[str, Any], event: int) -> None:
    row = row_of(ctx)
    ctx.set({**row, "greeted": row["greeted"] + event})


REMIND: Timer[str, str, Any] = Timer("remind", remind, String())
ACCOUNTS: Group[str, Any] = Group(
    "accounts",
    Input(
        ORDERS, order, once=Once(by="number", within=timedelta(days=1)), on_error=OnError.DEAD_LETTER,
        time=lambda event: event["at"],
    ),
    Input(PAYMENTS, pay, time=lambda event: event["at"]),
    Loop(GREETINGS, greet),
    Join(LIMITS),
    Lookup(COUNTRIES),
    Output(OUT),
    OPEN,
    REMIND,
    # When an input has fallen silent is not in the log: what fires because of that may fire later in a replay.
    EventTime(idle_after=None),
    Persist(Json()),
)  # fmt: skip
MINUTES = Tumbling(timedelta(minutes=1), grace=timedelta(seconds=5))


def minutes() -> Flow:
    flow = Flow("minutes")
    orders = flow.stream(ORDERS, time=lambda event: event["at"])
    orders.group_by_key().window(MINUTES).count("counts", value=Avro("long"))
    return flow


def ring(ctx: Context[str, Any], event: Any) -> None:
    row = ctx.value or {"orders": 0, "rung": 0}
    ctx.set({**row, "orders": row["orders"] + 1})
    ctx.timers.at(RING, ctx.timestamp_ms + 90_000, "")


def rung(ctx: Context[str, Any], _: str) -> None:
    ctx.set({**(ctx.value or {}), "rung": (ctx.value or {})["rung"] + 1})


RING: Timer[str, str, Any] = Timer("ring", rung, String(), clock="wall")
SILENT: Group[str, Any] = Group("silent", Input(ORDERS, ring), RING, Persist(Json()))
TOTALS: Rows[int] = Rows("totals", value=Avro("long"))


def add_up(batch: Batch, send: Send) -> None:
    del send
    totals = batch.rows(TOTALS)
    records = batch.of(ORDERS)
    known = totals.get_many({record.key for record in records})
    for record in records:
        known[record.key] = (known.get(record.key) or 0) + 1
        totals.put(record.key, known[record.key])


BATCHED = MicroBatch("batched", inputs=[ORDERS], process=add_up, rows=[TOTALS])


def happen(tester: Tester) -> None:
    """Orders, some of them twice, payments in any order, and limits and countries that change meanwhile."""
    random = Random(5)
    for number in range(300):
        tester.advance(random.choice([0.05, 1.0, 7.0]))
        at = int(tester.clock.now() * 1000) - random.randrange(4_000)
        key = f"user-{random.randrange(12)}".encode()
        event = {
            "number": f"{random.randrange(150)}", "cents": random.randrange(-5, 90), "at": at,
            "country": random.choice("ab"), "friend": f"user-{random.randrange(12)}",
        }  # fmt: skip
        topic = random.choice([ORDERS.name, ORDERS.name, PAYMENTS.name])
        tester.emit_raw(topic, key, Json().encode(event))
        if number % 20 == 7:
            tester.emit_raw(LIMITS.name, key, Long().encode(number))
            tester.emit_raw(COUNTRIES.name, random.choice([b"a", b"b"]), f"{number}".encode())
        if number % 50 == 9:
            tester.emit_raw(ORDERS.name, key, b"poison")


def replayed(
    tester: Tester, group: Group[Any, Any], partition: int, watermarks_ms: Mapping[str, int]
) -> Replay:
    """In the order of the records' timestamps, without those that are dead letters."""
    letters = {letter.origin for letter in tester.dead_letters(group)}
    dead = {(origin.topic, origin.partition, origin.offset) for origin in letters}
    lookups = {edge.table.name for edge in group.lookups}
    found: list[tuple[str, int, InMemoryMessage]] = []
    for topic in {*group.input_topics, *lookups}:
        for place, record in tester.kafka.records(topic):
            if place.partition == partition or topic in lookups:
                found.append((topic, place.partition, record))
    kept = [each for each in found if (each[0], each[1], each[2].offset()) not in dead]
    made = Replay(group, partition=partition, partitions=PARTITIONS, now=tester.clock.now())
    ordered = sorted(kept, key=lambda each: (each[2].timestamp()[1], each[0] not in lookups))
    for (topic, number), run in groupby(ordered, key=lambda each: each[:2]):
        made.feed(topic, [record for _, _, record in run], number)
    made.finish(watermarks_ms)
    return made


def assert_replays_are_its_tables(tester: Tester, group: Group[Any, Any]) -> None:
    live = {name: tester.kafka.records(name) for name in group.tables}
    for partition in range(PARTITIONS):
        reached: dict[str, int] = {}
        if group.event_time is not None:
            reached = dict.fromkeys(group.event_time_inputs, tester.watermark_ms(group, partition))
        replay = replayed(tester, group, partition, reached)
        assert replay.rows.keys() == {name.removeprefix(f"{group.name}-") for name in group.tables}
        for name, records in live.items():
            rows: dict[bytes, bytes | None] = {}
            for place, record in records:
                if place.partition == partition:
                    rows[record.key() or b""] = record.value()
            table = name.removeprefix(f"{group.name}-")
            if table == "ids":
                assert bool(replay.rows[table]) == any(rows.values()), "in chunks of other commits"
                continue
            assert replay.rows[table] == {key: value for key, value in rows.items() if value is not None}, (
                name
            )
        replay.close()
    assert any(live.values())


def test_a_replay_of_several_inputs_makes_the_rows_of_all_tables_and_the_timers_that_are_pending() -> None:
    with Tester(partitions=PARTITIONS) as tester:
        for stream in (ORDERS, PAYMENTS):
            tester.create(stream)
        tester.run(ACCOUNTS)
        happen(tester)
        assert_replays_are_its_tables(tester, ACCOUNTS)
        table = tester.table(ACCOUNTS)
        assert sum(row["reminded"] for row in table.values()) > 5, "timers have fired"
        assert sum(row["greeted"] for row in table.values()) > 100, "the loop was read"
        assert tester.kafka.records("accounts-timers"), "and others are pending"


@pytest.mark.parametrize("make", [lambda: SILENT, lambda: BATCHED, lambda: minutes().groups[0]])
def test_a_replay_of_windows_timers_by_the_wall_clock_and_batches_makes_their_rows(make: Any) -> None:
    group = make()
    with Tester(partitions=PARTITIONS) as tester:
        for stream in (ORDERS, PAYMENTS):
            tester.create(stream)
        for table in (LIMITS, COUNTRIES):
            tester.kafka.create_topic(table.name, PARTITIONS, compacted=True)
        tester.run(group)
        random = Random(11)
        for number in range(150):
            tester.advance(random.choice([0.1, 3.0, 40.0]))
            event = {"number": f"{number}", "at": int(tester.clock.now() * 1000) - random.randrange(9_000)}
            tester.emit(ORDERS, f"user-{random.randrange(9)}", event)
        assert_replays_are_its_tables(tester, group)


def test_what_is_due_by_the_watermark_of_the_group_fires_at_the_end_of_a_replay() -> None:
    def sleep(ctx: Context[str, Any], event: Any) -> None:
        ctx.timers.at(wake, event["at"] + 60_000, "", "")

    def woken(ctx: Context[str, Any], _: str) -> None:
        ctx.set("awake")

    wake: Timer[str, str, Any] = Timer("wake", woken, String())
    times = EventTime(idle_after=None)
    group = Group(
        "sleepers", Input(ORDERS, sleep, time=lambda event: event["at"]), wake, times, Persist(Json())
    )
    replay = Replay(group, partition=0, partitions=1, now=NOW)
    replay.feed(ORDERS.name, [InMemoryMessage(0, b"ann", b'{"at": 1000}', (), 1_000, None)])
    replay.finish()
    for watermark_ms, rows in ((1_000, {}), (60_999, {}), (61_000, {b"ann": b'"awake"'})):
        replay.finish({ORDERS.name: watermark_ms})
        assert replay.rows["table"] == rows
    replay.close()


def test_a_replay_takes_rows_and_output_records_of_any_size_and_for_any_partition_as_the_real_topics_may() -> (
    None
):
    def happens(records: Any) -> None:
        (key,), (event,) = records.keys, records.events
        records.put_many({key: "x" * event["row"]})
        records.emit_many(OUT, [key], ["x" * event["sent"]], partitions=[event["to"]])

    def time(event: Any) -> int:
        return int(event["row"])

    made = Input(ORDERS, batch=happens, on_error=OnError.DEAD_LETTER, time=time)
    out = Output(OUT, watermarks=True)  # to each partition that there is
    group = Group("big", made, out, EventTime(idle_after=None), Persist(Json()))
    replay = Replay(group, partition=0, partitions=1, now=NOW)
    events = ({"row": 2_000_000, "sent": 1, "to": -1}, {"row": 1, "sent": 2_000_000, "to": -1},
              {"row": 1, "sent": 1, "to": 7})  # fmt: skip
    for offset, event in enumerate(events):
        value = json.dumps(event).encode()
        replay.feed(ORDERS.name, [InMemoryMessage(offset, b"k%d" % offset, value, (), 5 + offset, None)])
        replay.finish()
    assert {key: len(row) for key, row in replay.rows["table"].items()} == {
        b"k0": 2_000_002,
        b"k1": 3,
        b"k2": 3,
    }
    replay.close()


def test_a_replay_stops_at_a_record_at_which_the_group_would_stop() -> None:
    def fail(ctx: Context[str, Any], event: Any) -> None:
        ctx.fail(f"no {event}")

    replay = Replay(Group("strict", Input(ORDERS, fail)), partition=0, partitions=1, now=NOW)
    replay.feed(ORDERS.name, [InMemoryMessage(7, b"k", b"1", (), 5, None)])
    with pytest.raises(HandlerFailed, match="no 1") as raised:
        replay.finish()
    assert (raised.value.topic, raised.value.offset) == (ORDERS.name, 7)
    with pytest.raises(ConfigurationError, match="does not read 'sales'"):
        replay.feed("sales", [])
    replay.close()
