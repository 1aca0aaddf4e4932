"""Changes of rows that are in other processes: processors on a real broker, and a reader that holds no rows."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from tests.system.bench import Bench, until
from tests.system.test_queries import KEYS, PATIENT, emit, instance

from servicekit.http.table_events import ChangeSource, TableEvents
from streamtable import App, Group
from streamtable.base.types import TopicPartition
from streamtable.codec.plain import Long
from streamtable.errors import ChangesMissed, NotReady, UnreadableRow
from streamtable.views import topic_follower
from streamtable_query import Query, RemoteTable

EVENTS = 300


@contextmanager
def remote(bench: Bench, group: Group[str, int]) -> Iterator[RemoteTable[str, int]]:
    with RemoteTable(Query(bench.kafka, group, group.table, timeout=PATIENT)) as counts:
        until(lambda: counts.ready, "there is a process to ask")
        yield counts


def events_until(counts: RemoteTable[str, int], key: str, last: int) -> list[tuple[int, int]]:
    """Return count and offset of each event of a row until its count is as high."""

    async def read() -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        source = ChangeSource(TableEvents(counts, "count", lambda count: {"count": count}), key=key)
        following = await asyncio.to_thread(source.__enter__)
        async with asyncio.timeout(PATIENT):
            while not found or found[-1][0] < last:
                event = await following(1.0)
                if event is not None:
                    data = json.loads(event.encoded.split(b"data: ")[1])
                    found.append((data["count"] or 0, data["offset"]))
        source.__exit__(None, None, None)
        return found

    return asyncio.run(read())


def test_a_row_and_its_changes_come_in_order_without_a_gap_or_a_repetition(bench: Bench) -> None:
    group = bench.counting(partitions=4)
    with instance(bench, group, "a"), instance(bench, group, "b"), remote(bench, group) as counts:
        with App(bench.kafka, bench.folder / "app").emitter(bench.stream()) as emitter:

            def emit_slowly() -> None:
                for number in range(EVENTS):
                    emitter.emit_now("alice", "event")
                    emitter.emit(KEYS[number % len(KEYS)], "event")

            emitting = Thread(target=emit_slowly)
            emitting.start()
            read = [events_until(counts, "alice", number) for number in (1, 60, 120, EVENTS)]
            emitting.join()
        read.append(events_until(counts, "alice", EVENTS))
    assert max(map(len, read)) > 1, "changes were followed"
    assert [found[-1][0] for found in read[-2:]] == [EVENTS, EVENTS]
    for found in read:
        assert found == sorted(set(found)), "each event is newer than the one before"
        assert len(found) == len({count for count, _ in found}), "no count is sent twice"


def test_changes_of_many_rows_come_with_deletions_and_without_those_that_cannot_be_decoded(
    bench: Bench,
) -> None:
    group, skipped = bench.counting(), list[UnreadableRow]()
    with instance(bench, group, "a"), remote(bench, group) as counts:
        with (
            counts.watch("user-1") as one,
            counts.watch(prefix="user", on_unreadable=skipped.append) as many,
        ):
            emit(bench, "user-1")
            assert [each.next(PATIENT).value for each in (one, many)] == [1, 1]  # type: ignore[union-attr]
            rows = [
                ("user-1", None),
                ("user-2", b"?"),
                ("other", Long().encode(1)),
                ("user-3", Long().encode(7)),
            ]
            bench.send(group.table.name, *rows)
            deleted, last = one.next(PATIENT), [many.next(PATIENT) for _ in range(2)]
            assert deleted is not None
            assert (deleted.key, deleted.value) == ("user-1", None)
            assert [(each.key, each.value) for each in last if each] == [("user-1", None), ("user-3", 7)]
            assert [(each.key, each.position) for each in skipped] == [(b"user-2", deleted.offset + 1)]
        assert one.ended
        assert one.next(0) is None


def test_an_answer_after_a_watch_was_opened_holds_all_that_the_watch_does_not_bring(bench: Bench) -> None:
    """An answer of a process that is behind stands for it: what the watch has seen is set behind all that there is."""
    group = bench.counting()
    with instance(bench, group, "a"), remote(bench, group) as counts:
        ack = emit(bench, "alice")
        asyncio.run(counts.wait_for_async(ack, PATIENT))
        with counts.watch("alice") as alice:
            assert counts.answer("alice").value == 1
            bench.send(group.table.name, ("bob", Long().encode(5)))  # which no processor knows of
            place = TopicPartition(group.table.name, 0)
            end = bench.cluster.stable_ends([place])[place]
            until(lambda: counts._changes._ends[0] >= end, "the record was seen")
            counts._query.limits = counts._query.limits._replace(deadline=1)
            with counts.watch("bob"), pytest.raises(NotReady, match="not yet at"):
                counts.answer("alice")
            assert alice.next(0) is None


def test_a_row_of_a_partition_without_records_is_answered_after_a_watch_was_opened(bench: Bench) -> None:
    """The process that has it stands before the marker of its last transaction, where the topic begins now."""
    group = bench.counting(config={"table": {"cleanup.policy": "compact,delete"}})
    with instance(bench, group, "a") as running, remote(bench, group) as counts:
        emit(bench, "alice")
        bench.wait_handled(group, running)
        place = TopicPartition(group.table.name, 0)
        end = bench.cluster.stable_ends([place])[place]
        admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers, "log_level": 0})
        for future in admin.delete_records([Place(*place, end)]).values():
            future.result(PATIENT)
        counts._query.limits = counts._query.limits._replace(deadline=5)
        with counts.watch("alice"):
            assert counts.answer("alice").value == 1


def test_a_watch_ends_when_the_topic_is_created_again_and_the_next_one_follows_the_new_topic(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_follower, "_CHECK_SECONDS", 0.5)
    group = bench.counting()
    with instance(bench, group, "a") as running:
        emit(bench, "alice", 3)
        bench.wait_handled(group, running)
    counts = RemoteTable(Query(bench.kafka, group, group.table, timeout=PATIENT, max_age=0))
    with counts, counts.watch("alice") as before:
        delete(bench, group)
        bench.create(group)
        with pytest.raises(ChangesMissed, match="watch again"):
            before.next(PATIENT)
        until(lambda: opened(counts), "the new topic is followed")
        with counts.watch("alice") as after:
            bench.send(group.table.name, ("alice", Long().encode(1)))
            change = after.next(PATIENT)
            assert change is not None
            assert (change.value, change.offset) == (1, 1)


def opened(counts: RemoteTable[str, int]) -> bool:
    try:
        counts.watch("alice").close()
    except NotReady:
        return False
    return True


def delete(bench: Bench, group: Group[str, int]) -> None:
    admin = AdminClient({"bootstrap.servers": bench.kafka.bootstrap_servers, "log_level": 0})
    admin.delete_topics([group.table.name])[group.table.name].result(PATIENT)
    until(lambda: group.table.name not in bench.cluster.topics([group.table.name]), "it is deleted")


def test_a_table_whose_topic_comes_later_can_be_watched_then(bench: Bench) -> None:
    group = bench.counting()
    delete(bench, group)
    with RemoteTable(Query(bench.kafka, group, group.table, timeout=1, max_age=0)) as counts:
        with pytest.raises(NotReady, match="not followed"):
            counts.watch("alice")
        bench.create(group)
        until(lambda: opened(counts), "the topic is followed")
