"""The task of a micro-batch's partition, run by the Tester with the real engine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from microbatch import Batch, InMemoryStore, MicroBatch, Rows, Send
from microbatch.stores.memory import MemoryDriver, MemoryServer
from microbatch.stores.port import Found, VersionedFields, WriteResult
from streamtable import Guarantee, Json, Long, OnError, Stream, String
from streamtable.base.deadletter import ORIGIN_OFFSET, ORIGIN_PARTITION, ORIGIN_TIMESTAMP, ORIGIN_TOPIC
from streamtable.errors import (
    ConfigurationError,
    GraphError,
    HandlerFailed,
    RetryLater,
    SerializationError,
    StateLost,
)
from streamtable_testing import Tester

EVENTS = Stream("events", String(), Long())
MORE = Stream("more", String(), Long())
OUT = Stream("out", String(), Long())
TOTALS = Rows("totals", value=Long())
OTHERS = Rows("others", value=Long())


def batches(process: Callable[[Batch, Send], Any], **settings: Any) -> MicroBatch:
    given = {"inputs": [EVENTS, MORE], "outputs": [OUT], "rows": [TOTALS], "max_wait": 1.0, **settings}
    return MicroBatch("g", process=process, **given)


def add(batch: Batch, send: Send) -> None:
    rows = batch.rows(TOTALS)
    totals = rows.get_many(record.key for record in batch.records)
    for record in batch.records:
        if record.value < 0:
            raise ValueError(f"{record.value} is negative")
        totals[record.key] = totals.get(record.key, 0) + record.value
    rows.put_many(totals)
    for record in batch.records:
        send(OUT, record.key, record.value)


class Flaky(MemoryDriver):
    """Fails this many reads or writes, as an unreachable server does."""

    reads_to_fail = 0
    writes_to_fail = 0

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        if self.reads_to_fail:
            type(self).reads_to_fail -= 1
            raise RetryLater("away")
        return super().read(keys, timeout)

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        if self.writes_to_fail:
            type(self).writes_to_fail -= 1
            raise RetryLater("away")
        return super().write(rows, number, timeout)


def latest(stores: list[InMemoryStore]) -> Any:
    """Each process that starts finds the last of these stores."""

    def make(*given: Any) -> Any:
        return stores[-1](*given)

    return make


def rows_of(tester: Tester, store: InMemoryStore, rows: Rows[Any] = TOTALS) -> dict[str, Any]:
    return store.rows(rows, tester.kafka.committed("g"))


# ---- bounds --------------------------------------------------------------------------------------------------------


def test_a_batch_has_at_most_its_limit_of_records(tester: Tester) -> None:
    sizes: list[int] = []
    tester.run(batches(lambda batch, _: sizes.append(len(batch)), max_records=4))
    tester.emit_many(EVENTS, [("a", number) for number in range(10)])
    assert sizes == [4, 4, 2]


def test_a_batch_has_at_most_its_limit_of_bytes_but_always_a_record(tester: Tester) -> None:
    sizes: list[int] = []
    tester.run(batches(lambda batch, _: sizes.append(len(batch)), max_bytes=19))  # a record here has nine
    tester.emit_many(EVENTS, [("a", number) for number in range(5)])
    tester.emit(EVENTS, "a" * 50, 1)
    assert sizes == [2, 2, 1, 1]


def test_a_batch_waits_at_most_max_wait_from_its_first_record() -> None:
    at: list[float] = []
    with Tester(work_on_request=True) as tester:
        tester.run(batches(lambda *_: at.append(tester.clock.now()), max_wait=5.0))
        tester.work()
        began = tester.clock.now()
        tester.emit(EVENTS, "a", 1)
        tester.work()
    assert at == [pytest.approx(began + 5.0, abs=0.2)]


def test_records_of_all_inputs_come_together_in_the_order_of_offsets(tester: Tester) -> None:
    seen: list[Any] = []

    def look(batch: Batch, send: Send) -> None:
        seen.append([[(r.key, r.value, r.offset) for r in batch.of(stream)] for stream in (EVENTS, MORE)])
        assert len(batch.records) == len(batch) == 3
        assert {record.topic for record in batch.records} == {"events", "more"}

    tester.create(EVENTS, MORE)
    tester.emit_many(EVENTS, [("a", 1), ("b", 2)])
    tester.emit(MORE, "a", 3, headers=[("h", b"x")], timestamp_ms=77)
    tester.run(batches(look))
    assert seen == [[[("a", 1, 0), ("b", 2, 1)], [("a", 3, 0)]]]


def test_each_partition_has_its_own_batches() -> None:
    seen: list[tuple[int, set[str]]] = []
    with Tester(partitions=4) as tester:
        tester.run(batches(lambda batch, _: seen.append((batch.partition, {r.key for r in batch.records}))))
        tester.emit_many(EVENTS, [(key, 1) for key in "abcdefgh"])
    assert len(seen) == len({partition for partition, _ in seen}) > 1
    assert sorted(key for _, keys in seen for key in keys) == list("abcdefgh")


def test_buffered_records_are_handled_at_a_stop(tester: Tester) -> None:
    graph = batches(add, max_wait=3_600.0)
    store = InMemoryStore(graph)
    with Tester(commit_on_request=True) as patient:
        patient.run(graph, tasks=store)
        patient.emit_many(EVENTS, [("a", 1), ("a", 2)])
        assert rows_of(patient, store) == {}
        patient.stop(graph)
        assert rows_of(patient, store) == {"a": 3}


# ---- rows ----------------------------------------------------------------------------------------------------------


def test_rows_are_read_in_one_round_trip_and_written_in_one(tester: Tester) -> None:
    asked: list[tuple[str, int]] = []

    class Counting(MemoryDriver):
        def read(self, keys: Sequence[bytes], timeout: float) -> Found:
            asked.append(("read", len(keys)))
            return super().read(keys, timeout)

        def write(
            self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float
        ) -> WriteResult:
            asked.append(("write", len(rows)))
            return super().write(rows, number, timeout)

    graph = batches(add)
    store = InMemoryStore(graph, driver=lambda: Counting(store.server, tenant="g"))
    tester.run(graph, tasks=store)
    asked.clear()
    tester.emit_many(EVENTS, [(key, 1) for key in "abcabc"])
    assert asked == [("read", 3), ("write", 3)]


@pytest.mark.parametrize("ttl", [None, 60])
def test_a_row_that_is_put_with_the_same_value_is_written_if_rows_expire(
    tester: Tester, ttl: float | None
) -> None:
    written: list[bytes] = []

    class Expiring(MemoryDriver):
        ttl: float | None = None

        def write(
            self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float
        ) -> WriteResult:
            written.extend(rows.keys() & {b"totals/a"})
            return super().write(rows, number, timeout)

    def driver() -> Expiring:
        found = Expiring(store.server, tenant="g")
        found.ttl = ttl
        return found

    graph = batches(lambda batch, _: batch.rows(TOTALS).put("a", 1))
    store = InMemoryStore(graph, driver=driver)
    tester.run(graph, tasks=store)
    for _ in range(3):
        tester.emit(EVENTS, "a", 1)
    assert len(written) == (1 if ttl is None else 3)
    assert rows_of(tester, store) == {"a": 1}


def test_a_row_that_is_put_with_the_same_value_gets_the_search_fields_of_the_program(tester: Tester) -> None:
    index: dict[bytes, VersionedFields] = {}

    class Searching(MemoryDriver):
        def write_found_by(
            self,
            rows: Mapping[bytes, bytes | None],
            number: int | None,
            timeout: float,
            fields: Mapping[bytes, VersionedFields],
        ) -> WriteResult:
            index.update(fields)
            return self.write(rows, number, timeout)

    server = MemoryServer()

    def version(name: str) -> tuple[MicroBatch, InMemoryStore]:
        rows = Rows("found", value=Long(), fields=lambda row: {name: row})
        graph = batches(lambda batch, _: batch.rows(rows).put("a", 7), rows=[rows])
        return graph, InMemoryStore(graph, driver=lambda: Searching(server, tenant="g"))

    graph, store = version("old")
    tester.run(graph, tasks=store)
    tester.emit(EVENTS, "a", 1)
    assert index == {b"found/a": VersionedFields({"old": 7}, None)}
    tester.stop(graph)
    graph, store = version("new")
    tester.start(graph, tasks=store)
    tester.emit(EVENTS, "a", 2)
    assert index == {b"found/a": VersionedFields({"new": 7}, {"new": 7})}


def test_reads_see_the_changes_of_the_batch(tester: Tester) -> None:
    def change(batch: Batch, send: Send) -> None:
        rows, others = batch.rows(TOTALS), batch.rows(OTHERS)
        rows.put("a", 1)
        others.put("a", 2)
        rows.put("b", 5)
        rows.delete("b")
        assert (rows.get("a"), others.get("a"), rows.get("b"), rows.get("c")) == (1, 2, None, None)

    graph = batches(change, rows=[TOTALS, OTHERS])
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    tester.emit(EVENTS, "x", 1)
    tester.emit(EVENTS, "x", 2)
    assert (rows_of(tester, store), rows_of(tester, store, OTHERS)) == ({"a": 1}, {"a": 2})


def test_a_row_of_another_partition_is_an_error() -> None:
    graph = batches(lambda batch, _: batch.rows(TOTALS).put("one for all", batch.records[0].value))
    with Tester(partitions=4) as tester:
        tester.run(graph, tasks=InMemoryStore(graph))
        tester.emit(EVENTS, "a", 1)
        with pytest.raises(GraphError, match="must be derived from the keys of records"):
            tester.emit_many(EVENTS, [(key, number + 9) for number, key in enumerate("abcdefgh")])


def test_undeclared_rows_and_outputs_are_errors(tester: Tester) -> None:
    tester.run(batches(lambda batch, _: batch.rows(OTHERS)))
    with pytest.raises(GraphError, match="'others' are not declared"):
        tester.emit(EVENTS, "a", 1)


def test_plain_rows_are_written_as_they_are(tester: Tester) -> None:
    graph = batches(add)
    store = InMemoryStore(graph, plain=True)
    tester.run(graph, tasks=store, guarantee=Guarantee.AT_LEAST_ONCE)
    tester.emit_many(EVENTS, [("a", 1), ("a", 2)])
    assert rows_of(tester, store) == {"a": 3}
    assert store.server.rows["g", b"totals/a"] == (0, Long().encode(3))


def test_a_batch_is_retried_while_the_store_is_unreachable(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = batches(add)
    store = InMemoryStore(graph, driver=lambda: Flaky(store.server, tenant="g"))
    monkeypatch.setattr(Flaky, "writes_to_fail", 40)  # more than the retries of one call
    monkeypatch.setattr(Flaky, "reads_to_fail", 40)
    tester.run(graph, tasks=store)
    monkeypatch.setattr(Flaky, "writes_to_fail", 40)
    tester.emit(EVENTS, "a", 1)
    tester.emit(EVENTS, "a", 2)
    assert rows_of(tester, store) == {"a": 3}
    assert [record.value for record in tester.records(OUT)] == [1, 2]


def test_a_store_error_that_process_catches_still_undoes_the_batch(
    tester: Tester, monkeypatch: pytest.MonkeyPatch
) -> None:
    def careless(batch: Batch, send: Send) -> None:
        try:
            add(batch, send)
        except RetryLater:
            batch.rows(TOTALS).put("a", -1)

    graph = batches(careless)
    store = InMemoryStore(graph, driver=lambda: Flaky(store.server, tenant="g"))
    tester.run(graph, tasks=store)
    monkeypatch.setattr(Flaky, "reads_to_fail", 40)
    tester.emit(EVENTS, "a", 7)
    assert rows_of(tester, store) == {"a": 7}


# ---- invalid records, and failures of `process` --------------------------------------------------------------------


def test_poison_goes_to_the_dead_letters_and_the_rest_of_its_batch_is_handled(tester: Tester) -> None:
    graph = batches(add)
    store = InMemoryStore(graph)
    tester.create(EVENTS)
    tester.emit(EVENTS, "a", 1)
    for key, value in [
        (b"a", b"too short"),
        (None, Long().encode(5)),
        (b"a", None),
        (b"\xff", Long().encode(5)),
    ]:
        tester.emit_raw("events", key, value, partition=0)
    tester.emit(EVENTS, "a", 2)
    tester.run(graph, tasks=store)
    assert rows_of(tester, store) == {"a": 3}
    assert [letter.origin.offset for letter in tester.dead_letters(graph)] == [1, 2, 3, 4]


def test_a_record_of_1970_is_not_sent_with_the_present_time(tester: Tester) -> None:
    def pass_on(batch: Batch, send: Send) -> None:
        for record in batch.of(EVENTS):
            send(OUT, record.key, record.value, timestamp_ms=0)

    tester.run(batches(pass_on))
    tester.emit(EVENTS, "a", 1)
    assert [record.timestamp_ms for record in tester.records(OUT)] == [1]


def test_a_record_that_is_rejected_twice_is_one_dead_letter(tester: Tester) -> None:
    def reject(batch: Batch, send: Send) -> None:
        for record in batch.records:
            for reason in ("too old", "too short"):
                batch.reject(record, reason)

    graph = batches(reject)
    tester.run(graph)
    tester.emit_many(EVENTS, [("a", 1), ("a", 2)])
    assert [letter.reason for letter in tester.dead_letters(graph)] == ["too old", "too old"]


def test_rejected_records_go_to_the_dead_letters_and_can_be_sent_again(tester: Tester) -> None:
    refused, times = {"b"}, []

    def pick(batch: Batch, send: Send) -> None:
        for record in batch.of(EVENTS):
            times.append((record.key, record.timestamp_ms))
            if record.key in refused:
                batch.reject(record, "not today")
            else:
                send(OUT, record.key, record.value)

    graph = batches(pick)
    tester.run(graph)
    tester.emit(EVENTS, "a", 1, timestamp_ms=1_000)
    tester.emit(EVENTS, "b", 2, timestamp_ms=2_000)
    (letter,) = tester.dead_letters(graph)
    assert (letter.origin.offset, letter.error, letter.reason) == (1, "Rejected", "not today")
    refused.clear()
    tester.retry(graph, letter)
    assert [(r.key, r.value) for r in tester.records(OUT)] == [("a", 1), ("b", 2)]
    assert times == [("a", 1_000), ("b", 2_000), ("b", 2_000)]
    tester.emit_raw(graph.retry, b"a", Long().encode(1), partition=0)
    assert "do not name an input" in tester.dead_letters(graph)[1].reason


class Prefixed(Long):
    """Numbers behind a byte, which producers may write into a header."""

    prefix_header = "begins"

    def decode(self, data: bytes) -> int:
        if not data.startswith(b"#"):
            raise ValueError("it does not begin with #")
        return super().decode(data[1:])


def test_a_record_of_the_retry_topic_is_read_with_the_prefix_in_its_header(tester: Tester) -> None:
    numbers, seen = Stream("numbers", String(), Prefixed()), list[int]()
    graph = MicroBatch(
        "g", process=lambda batch, _: seen.extend(each.value for each in batch.records), inputs=[numbers]
    )
    tester.run(graph)
    prefix = ("begins", b"#")
    tester.emit_raw(numbers.name, b"a", Long().encode(1), headers=[prefix])
    origin = [
        (ORIGIN_TOPIC, b"numbers"),
        (ORIGIN_PARTITION, b"0"),
        (ORIGIN_OFFSET, b"0"),
        (ORIGIN_TIMESTAMP, b"5"),
    ]
    tester.emit_raw(graph.retry, b"a", Long().encode(2), headers=[prefix, *origin], partition=0)
    assert (seen, tester.dead_letters(graph)) == ([1, 2], [])


def test_a_process_that_hides_a_generator_stops_the_group(tester: Tester) -> None:
    def yields(batch: Batch, send: Send) -> Any:
        yield batch

    tester.run(batches(lambda batch, send: yields(batch, send)))  # noqa: PLW0108 - which hides it
    with pytest.raises(GraphError, match="nothing would run it"):
        tester.emit(EVENTS, "a", 1)


class Unregistered(Long):
    def prepare(self) -> None:
        raise ConfigurationError("the registry has no such subject")


def test_a_micro_batch_does_not_start_without_the_schemas_of_its_rows(tester: Tester) -> None:
    with pytest.raises(ConfigurationError, match="no such subject"):
        tester.run(batches(add, rows=[Rows("totals", value=Unregistered())]))


def test_an_error_of_process_stops_the_group_and_names_the_batch(tester: Tester) -> None:
    graph = batches(add)
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    with pytest.raises(
        HandlerFailed, match=r"ValueError: -1 is negative; .* was events\[0\]@0\.\.1"
    ) as caught:
        tester.emit_many(EVENTS, [("a", 1), ("a", -1)])
    assert (caught.value.topic, caught.value.partition, type(caught.value.__cause__)) == (
        "events",
        0,
        ValueError,
    )
    assert (rows_of(tester, store), tester.records(OUT)) == ({}, [])


@pytest.mark.parametrize("on_error", [OnError.DEAD_LETTER, OnError.SKIP])
def test_records_that_make_process_raise_are_isolated_and_left_out(tester: Tester, on_error: OnError) -> None:
    graph = batches(add, on_error=on_error)
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    tester.emit_many(EVENTS, [("a", -1 if number in {3, 30, 31} else 1) for number in range(40)])
    assert rows_of(tester, store) == {"a": 37}
    assert len(tester.records(OUT)) == 37
    letters = [letter.origin.offset for letter in tester.dead_letters(graph)]
    assert letters == ([3, 30, 31] if on_error is OnError.DEAD_LETTER else [])


def test_a_row_that_cannot_be_encoded_is_attributed_to_its_record(tester: Tester) -> None:
    graph = batches(
        lambda batch, _: batch.rows(TOTALS).put_many({r.key: r.value * 2 for r in batch.records}),
        on_error=OnError.DEAD_LETTER,
    )
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    tester.emit_many(EVENTS, [("a", 1), ("b", 2**62 + 1), ("c", 3)])
    assert rows_of(tester, store) == {"a": 2, "c": 6}
    assert [letter.key for letter in tester.dead_letters(graph)] == [b"b"]


def test_too_long_keys_of_rows_are_rejected_at_once(tester: Tester) -> None:
    tester.run(batches(lambda batch, _: batch.rows(TOTALS).get("a" * 5_000)))
    with pytest.raises(HandlerFailed) as caught:
        tester.emit(EVENTS, "a", 1)
    assert isinstance(caught.value.__cause__, SerializationError)


def test_a_row_too_large_for_the_store_is_attributed_to_its_record(tester: Tester) -> None:
    class Small(MemoryDriver):
        def write(
            self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float
        ) -> WriteResult:
            for at, (key, data) in enumerate(rows.items()):
                if len(data or b"") > 500:
                    super().write(dict(list(rows.items())[:at]), number, timeout)
                    raise SerializationError(f"{key!r} is too large")
            return super().write(rows, number, timeout)

    texts: Rows[Any] = Rows("texts", value=Json())
    graph = batches(
        lambda batch, _: batch.rows(texts).put_many({r.key: "x" * r.value for r in batch.records}),
        rows=[texts],
        on_error=OnError.DEAD_LETTER,
    )
    store = InMemoryStore(graph, driver=lambda: Small(store.server, tenant="g"))
    tester.run(graph, tasks=store)
    tester.emit_many(EVENTS, [("a", 1), ("b", 2), ("c", 600), ("d", 4)])
    assert rows_of(tester, store, texts) == {"a": "x", "b": "xx", "d": "xxxx"}
    assert [letter.key for letter in tester.dead_letters(graph)] == [b"c"]


# ---- async ---------------------------------------------------------------------------------------------------------


def test_batches_of_several_partitions_await_concurrently() -> None:
    running, most = 0, 0

    async def slow(batch: Batch, send: Send) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    with Tester(partitions=4) as tester:
        tester.run(batches(slow, max_wait=0.0))
        tester.emit_many(EVENTS, [(key, 1) for key in "abcdefgh"])
    assert most > 1


def test_a_plain_process_may_run_an_event_loop_of_its_own(tester: Tester) -> None:
    graph = batches(lambda batch, send: send(OUT, "a", asyncio.run(asyncio.sleep(0, 7))))
    tester.run(graph)
    tester.emit(EVENTS, "a", 1)
    assert [record.value for record in tester.records(OUT)] == [7]


def test_gather_keeps_its_limit_and_the_order(tester: Tester) -> None:
    running, most = 0, 0
    answers: list[int] = []

    async def ask(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001)
        running -= 1
        return number

    async def slow(batch: Batch, send: Send) -> None:
        answers.extend(await batch.gather((ask(r.value) for r in batch.records), at_once=3))

    tester.run(batches(slow))
    tester.emit_many(EVENTS, [("a", number) for number in range(10)])
    assert (answers, most) == (list(range(10)), 3)


def test_an_error_in_gather_cancels_the_others_and_fails_the_batch(tester: Tester) -> None:
    async def ask(number: int) -> None:
        if number == 3:
            raise RuntimeError("no answer")
        await asyncio.sleep(30)

    async def slow(batch: Batch, send: Send) -> None:
        await batch.gather(ask(r.value) for r in batch.records)

    tester.run(batches(slow))
    with pytest.raises(HandlerFailed, match="no answer"):
        tester.emit_many(EVENTS, [("a", number) for number in range(300)])


# ---- sending, and being at the end ---------------------------------------------------------------------------------


def test_flushed_records_are_visible_only_after_the_commit(tester: Tester) -> None:
    fail = [True]

    def flush_and_fail(batch: Batch, send: Send) -> None:
        send(OUT, "a", 1)
        send.flush()
        assert tester.records(OUT) == []
        send(OUT, "a", 2)
        if fail.pop() if fail else False:
            raise RetryLater("again, please")

    tester.run(batches(flush_and_fail))
    tester.emit(EVENTS, "a", 1)
    assert [record.value for record in tester.records(OUT)] == [1, 2]


def test_has_caught_up_reports_whether_records_are_left(tester: Tester) -> None:
    seen: list[bool] = []
    tester.create(EVENTS, MORE)
    tester.emit_many(EVENTS, [("a", number) for number in range(8)])
    tester.run(batches(lambda batch, _: seen.append(batch.has_caught_up()), max_records=4))
    assert seen == [False, True]


# ---- offsets that do not fit the store -----------------------------------------------------------------------------


def test_an_empty_store_after_committed_batches_is_an_error(tester: Tester) -> None:
    graph = batches(add)
    stores = [InMemoryStore(graph)]
    tester.run(graph, tasks=latest(stores))
    tester.emit(EVENTS, "a", 1)
    tester.stop(graph)
    stores.append(InMemoryStore(graph))
    with pytest.raises(StateLost, match="the store has lost rows"):
        tester.start(graph)


def test_missing_offsets_are_an_error_while_the_store_has_rows(tester: Tester) -> None:
    graph = batches(add)
    tester.run(graph, tasks=InMemoryStore(graph))
    tester.emit(EVENTS, "a", 1)
    tester.stop(graph)
    tester.kafka.group("g").offsets.forget()
    with pytest.raises(StateLost, match="reset or have expired"):
        tester.start(graph)


def test_moving_partitions_keep_their_rows() -> None:
    graph = batches(add)
    store = InMemoryStore(graph)
    with Tester(partitions=4) as tester:
        tester.run(graph, tasks=store)
        moves: list[Callable[[], None]] = [lambda: tester.join(graph)] * 2 + [lambda: tester.leave(graph, 0)]
        for move in moves:
            tester.emit_many(EVENTS, [(key, 1) for key in "abcdefgh"])
            move()
        tester.emit_many(EVENTS, [(key, 1) for key in "abcdefgh"])
        assert rows_of(tester, store) == dict.fromkeys("abcdefgh", 4)


def test_rows_may_have_any_codec(tester: Tester) -> None:
    pieces: Rows[Any] = Rows("pieces", value=Json())

    def collect(batch: Batch, send: Send) -> None:
        rows = batch.rows(pieces)
        for record in batch.records:
            rows.put(record.key, [*(rows.get(record.key) or []), record.value])

    graph = batches(collect, rows=[pieces])
    store = InMemoryStore(graph)
    tester.run(graph, tasks=store)
    tester.emit_many(EVENTS, [("a", 1), ("a", 2)])
    tester.emit(MORE, "a", 3)
    assert rows_of(tester, store, pieces) == {"a": [1, 2, 3]}
