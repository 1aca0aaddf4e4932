"""A member of a group on the virtual Kafka: `ports.GroupConsumer`.

Like the real client, it learns only from an empty fetch that it has reached the end of a partition, and its position
beyond transaction markers: see `passed`.

It joins with its first poll and sends a heartbeat with every poll. A poll applies at most one change of its assignment,
after the fetch, so it may return records of a partition that was just revoked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Literal

from streamtable.base.clock import Clock
from streamtable.base.ports import RebalanceListener
from streamtable.base.types import Committed, RecordBatch, TopicPartition
from streamtable.errors import Migrated, RetryLater
from streamtable_testing.faults import Wire
from streamtable_testing.group import GroupCoordinator, Heard, VirtualMembership
from streamtable_testing.topic import InMemoryMessage, Partition

_Callback = Literal["assigned", "revoked", "lost"]


class VirtualGroupConsumer:
    """A consumer: one member of a group.

    Args:
        member_id: The unique member id.
        group: The coordinator of the group.
        partition: Returns a partition; None if it does not exist.
        wire: The connection to the broker.
        clock: The clock; a poll without records advances it by the timeout.
    """

    def __init__(
        self,
        member_id: str,
        group: GroupCoordinator,
        partition: Callable[[TopicPartition], Partition | None],
        wire: Wire,
        clock: Clock,
    ) -> None:
        self._member_id = member_id
        self._group = group
        self._partition = partition
        self._wire = wire
        self._clock = clock
        self._topics: Sequence[str] = ()
        self._listener: RebalanceListener | None = None
        self._epoch: int | None = None  # None: not joined
        self._owned: set[TopicPartition] = set()
        self._paused: set[TopicPartition] = set()
        self._next: dict[TopicPartition, int] = {}  # the next offsets to read; no entry until the first seek
        self._passed: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._heartbeats = 0
        self._failure: BaseException | None = None
        self._closed = False

    def subscribe(self, topics: Sequence[str], listener: RebalanceListener) -> None:
        self._topics, self._listener = list(topics), listener

    def poll(self, max_records: int, timeout: float) -> list[RecordBatch]:
        self._raise_failure()
        try:
            batches = self._fetch(max_records)
        finally:  # the client sends heartbeats from a thread of its own, whatever the fetch has found
            self._heartbeat()
        self._raise_failure()
        if not batches:
            self._clock.sleep(timeout)
        return batches

    def passed(self) -> Mapping[TopicPartition, int]:
        passed, self._passed = self._passed, {}
        return passed

    def end(self, place: TopicPartition) -> int:
        return self._ends.get(place, 0)

    def pause(self, places: Iterable[TopicPartition]) -> None:
        self._paused.update(places)

    def resume(self, places: Iterable[TopicPartition]) -> None:
        resumed = self._paused.intersection(places)
        if unplaced := resumed - self._next.keys():
            raise AssertionError(f"resumed before a seek: {sorted(unplaced)}")
        self._paused -= resumed

    def seek(self, place: TopicPartition, offset: int) -> None:
        if place not in self._owned:
            raise Migrated("a seek in a partition that is not assigned").at(*place, offset)
        self._next[place] = offset
        self._passed.pop(place, None)

    def commit(self, offsets: Mapping[TopicPartition, Committed]) -> None:
        if not offsets:
            return
        membership = self.membership()
        if not membership.member_id:
            raise Migrated(
                "offsets cannot be committed: the consumer has not joined the group, or has left it"
            )

        def commit() -> None:
            self._group.check(membership)
            if reason := self._group.offsets.refused(offsets):
                raise RetryLater(reason)  # as the real adapter, which does not know this error
            self._group.offsets.committed.update(offsets)

        self._wire.ask("commit-offsets", commit, silent=RetryLater)

    def membership(self) -> VirtualMembership:
        return VirtualMembership(self._group.name, self._member_id if self._epoch else "", self._epoch or 0)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.join_again()
        self._raise_failure()

    def join_again(self) -> None:
        self._heartbeats += 1  # invalidates heartbeats in flight
        self._take(frozenset(self._owned), "revoked")
        with suppress(RetryLater):  # the group notices it at the session timeout
            self._wire.ask("leave", lambda: self._group.leave(self._member_id), silent=RetryLater)
        self._epoch, self._member_id = None, f"{self._member_id}+"  # a new member's

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _fetch(self, max_records: int) -> list[RecordBatch]:
        starts = {place: self._next[place] for place in sorted(self._next.keys() - self._paused)}

        def fetch() -> list[tuple[TopicPartition, list[InMemoryMessage], int, int]]:
            fetched, room = [], max_records
            for place, start in starts.items():
                if room and (partition := self._partition(place)) is not None:
                    records, position = partition.read(start, room)
                    fetched.append((place, records, position, partition.high))
                    room -= len(records)
            return fetched

        if not starts:
            return []
        try:
            fetched = self._wire.ask("fetch", fetch, silent=RetryLater)
        except RetryLater:
            return []
        for place, records, position, end in fetched:
            self._ends[place] = end
            if records:
                self._next[place] = records[-1].offset() + 1
            elif position > self._next[place]:
                self._next[place] = self._passed[place] = position
        return [RecordBatch(*place, records) for place, records, _, _ in fetched if records]

    def _heartbeat(self) -> None:
        self._heartbeats = number = self._heartbeats + 1
        try:
            heard = self._wire.ask("heartbeat", lambda: self._hear(number), silent=RetryLater)
        except RetryLater:
            return
        except Migrated:
            revoked = self._wire.faults.removal_told_as_revocation(self._wire.process)
            self._take(frozenset(self._owned), "revoked" if revoked else "lost")
            self._epoch = None
            return
        self._epoch = heard.epoch
        if heard.revoke:
            self._take(heard.revoke, "revoked")
        elif heard.assign:
            self._owned |= heard.assign
            self._paused |= heard.assign
            self._tell("assigned", heard.assign)

    def _hear(self, number: int) -> Heard:
        if number != self._heartbeats:
            raise Migrated("a late heartbeat is ignored: another was sent since")
        if self._epoch is None:
            self._group.join(self._member_id, self._topics)
        return self._group.heartbeat(self._member_id, self._epoch or 0, frozenset(self._owned))

    def _take(self, places: frozenset[TopicPartition], callback: _Callback) -> None:
        self._tell(callback, places)
        self._owned -= places
        self._paused -= places
        for place in places:
            self._next.pop(place, None)
            self._passed.pop(place, None)

    def _tell(self, callback: _Callback, places: frozenset[TopicPartition]) -> None:
        if places and self._listener is not None and self._failure is None:
            try:
                getattr(self._listener, callback)(sorted(places))
            except Exception as error:  # noqa: BLE001 - raised unchanged by `poll` or `close`
                self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
