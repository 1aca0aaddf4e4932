"""Standby replicas of partitions that other members work on, so that a newly assigned one loads little.

They are of all partitions, or of those that would be assigned here if some other members left: the next owners have them.

All of it happens in the background thread, between the slices of restores. So handing a replica over to a restore needs
no lock, and no replica moves on while the broker is asked where its topic ends.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import structlog

from streamtable.base.clock import Clock
from streamtable.base.ports import ClusterClient, Stores, TopicInfo
from streamtable.base.types import TopicPartition
from streamtable.errors import InputLost, RetryLater, StoreBroken, StoreCorrupted, StoreInUse
from streamtable.tables.changelog_reader import ChangelogReader
from streamtable.tables.recovery import Changelog, plan_replica
from streamtable.tables.replica import Expand, PartitionReplica, ReplicaState

log = structlog.get_logger()

_ASK_SECONDS = 1.0
_START_SECONDS = 3.0  # by then the partitions of this process are assigned
_PAUSE_SECONDS = 0.5  # a partition may come back at once, or its new owner on this machine may need it
_CHOOSE_SECONDS = 5.0
# A replica that is chosen no more is still the best one until the next owner has loaded it.
_KEEP_SECONDS = 60.0
_REFUSED_SECONDS = 10.0  # until a replica that could not be opened or followed is tried again
_OPENED_AT_ONCE = 4  # a store takes some 20 ms, and no recovery advances meanwhile

Shown = Callable[[Mapping[TopicPartition, int]], None]
"""Called once a second with how many offsets each replica has still to read."""


@dataclass(eq=False)
class Standby:
    """Replicas of all partitions of some tables, or of some of them, except the assigned ones.

    `step`, `hand_over` and the rest belong to the background thread; `taken` and `left` to the main thread.

    Args:
        own: The tables that the group keeps, as far as they are among them; one without its beginning is not complete.
        topics: The topics to keep replicas of.
        cluster: Used to request the ends of topics.
        reader: The process's reader of changelogs.
        stores: The local stores of the tables.
        clock: Wall and monotonic time.
        shown: Called with the lag of each replica.
        expand: The function that makes the rows of a store from records, by table, for tables whose rows are not the records.
        prefix_headers: See `ports.HeaderPrefix`, by table.
        choose: Returns the partitions to keep replicas of, and is asked again every 5 s. May raise `RetryLater`. None: all.
    """

    _own: Collection[str]
    _topics: Sequence[TopicInfo]
    _cluster: ClusterClient
    _reader: ChangelogReader
    _stores: Stores
    _clock: Clock
    _shown: Shown
    expand: Mapping[str, Expand] = field(default_factory=dict)
    prefix_headers: Mapping[str, str] = field(default_factory=dict)
    choose: Callable[[], Collection[int]] | None = None

    def __post_init__(self) -> None:
        self._tables = {table.name: table for table in self._topics}
        partitions = max((table.partitions for table in self._topics), default=0)
        self._places = self._places_of(() if self.choose else range(partitions))
        self._replicas: dict[TopicPartition, PartitionReplica] = {}
        self._paused: set[TopicPartition] = set()  # not read, for as long as partitions of ours are loading
        self._ours: set[int] = set()
        self._begins_at = self._clock.monotonic() + _START_SECONDS
        self._free_at: dict[int, float] = {}  # from then on it may be opened
        self._refused_until: dict[TopicPartition, float] = {}
        self._asked_at = self._choose_at = -math.inf
        self._chosen_at: dict[TopicPartition, float] = {}

    # ---- main thread -----------------------------------------------------------------------------------------------

    def taken(self, partition: int) -> None:
        """Note that this partition is assigned here: its replicas are for `hand_over` only from now on."""
        self._ours.add(partition)

    def left(self, partition: int) -> None:
        """Note that this partition is no longer assigned here, and its stores are closed."""
        if partition in self._ours:
            now = self._clock.monotonic()
            self._free_at[partition] = now + _PAUSE_SECONDS
            self._ours.discard(partition)
            # Until its next owner has loaded it, nothing but a replica can answer for it.
            self._asked_at, self._choose_at = now + _PAUSE_SECONDS - _ASK_SECONDS, -math.inf

    def replica(self, table: str, partition: int) -> PartitionReplica | None:
        """Return the replica of a partition; None if there is none. Any thread."""
        return self._replicas.get(TopicPartition(table, partition))

    def keeps(self, table: str, partition: int) -> bool:
        """Return whether the state of this partition stays on disk, whichever member works on it."""
        return (table, partition) in self._places

    # ---- background thread -----------------------------------------------------------------------------------------

    def hand_over(self, table: str, partition: int) -> PartitionReplica | None:
        """Return the replica of a partition, which is no longer followed; None if there is none."""
        replica = self._forget(TopicPartition(table, partition))
        if replica is not None and replica.state is not ReplicaState.OPENING:
            with suppress(StoreBroken):  # the restore finds it too
                replica.save(replica.current_at)
        return replica

    def step(self, *, loading: bool) -> None:
        """Do a slice of the work. `loading`: assigned partitions are loading and come first."""
        if not self._tables:
            return
        self._pace(loading=loading)
        if self._clock.monotonic() - self._asked_at >= _ASK_SECONDS:
            self._asked_at = self._clock.monotonic()
            self._look(loading=loading)

    @property
    def behind(self) -> Mapping[TopicPartition, int]:
        """The offsets that each replica still has to read, by the ends that were asked for last."""
        return {place: replica.lag for place, replica in self._replicas.items()}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """The position of each replica."""
        return {place: replica.position for place, replica in self._replicas.items()}

    @property
    def settled(self) -> bool:
        """Whether every replica that can be kept is kept and has caught up. Any thread."""
        current = all(replica.current and not replica.lag for replica in list(self._replicas.values()))
        return current and not any(self._missing())

    def close(self) -> None:
        """Close all replicas, after the background thread has ended."""
        for place in list(self._replicas):
            self._drop(place)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _missing(self) -> Iterator[TopicPartition]:
        now = self._clock.monotonic()
        for place in sorted(self._places - self._replicas.keys()):
            if place.partition not in self._ours and now >= self._refused_until.get(place, now):
                yield place

    def _pace(self, *, loading: bool) -> None:
        for place, replica in self._replicas.items():
            if loading and replica.state in {ReplicaState.LOADING, ReplicaState.STALE}:
                if place not in self._paused:
                    self._reader.remove(replica)
                    self._paused.add(place)
            elif not loading and place in self._paused and replica.failure is None:
                self._paused.discard(place)
                self._reader.add(replica)

    def _places_of(self, partitions: Iterable[int]) -> frozenset[TopicPartition]:
        return frozenset(
            TopicPartition(t.name, p) for p in partitions for t in self._tables.values() if p < t.partitions
        )

    def _choose_again(self) -> None:
        """Ask which partitions to keep replicas of, and drop those that are chosen no more."""
        now = self._clock.monotonic()
        if self.choose is None or now < self._choose_at:
            return
        self._choose_at = now + _CHOOSE_SECONDS
        try:
            self._places = self._places_of(self.choose())
        except RetryLater as error:
            log.debug("standby cannot get the members of the group", reason=str(error))
        self._chosen_at |= dict.fromkeys(self._places, now)
        for place in list(self._replicas):
            if now - self._chosen_at[place] > _KEEP_SECONDS:
                self._drop(place)

    def _look(self, *, loading: bool) -> None:
        self._choose_again()
        for place, replica in list(self._replicas.items()):
            self._mend(place, replica)
        if not loading:
            self._open_some()
        if not self._replicas:
            self._shown({})
            return
        asked_at = self._clock.now()
        try:
            marks = self._cluster.watermarks(list(self._replicas))
        except RetryLater as error:
            log.debug("standby cannot get the end of the changelog", reason=str(error))
            return
        for place, replica in list(self._replicas.items()):
            changelog = Changelog(self._tables[place.topic], marks[place])
            try:
                self._compare(place, replica, changelog, asked_at)
            except StoreCorrupted as error:
                self._discard(place, error.message)
        self._shown(self.behind)

    def _open_some(self) -> None:
        now = self._clock.monotonic()
        free = [each for each in self._missing() if now >= self._free_at.get(each.partition, self._begins_at)]
        for place in free[:_OPENED_AT_ONCE]:
            try:
                expand, header = self.expand.get(place.topic), self.prefix_headers.get(place.topic, "")
                self._replicas[place] = PartitionReplica(
                    self._stores, *place, self._clock, spare=True, expand=expand, prefix_header=header
                )
            except StoreInUse as error:
                log.debug("another process holds the store of this partition", reason=str(error))
                self._refuse(place)

    def _compare(
        self, place: TopicPartition, replica: PartitionReplica, changelog: Changelog, asked_at: float
    ) -> None:
        """Compare a replica with what its topic held at this time."""
        if replica.state is ReplicaState.OPENING and not self._begin(place, replica, changelog, asked_at):
            return
        reason = replica.why_discard(changelog, self._clock.now())
        if not reason and place.topic not in self._own:
            reason = replica.behind_start(changelog.marks.low)
        if reason:
            # Also of a process that stood still: it may have missed tombstones that are gone now.
            self._discard(place, reason)
        else:
            replica.observe_end(asked_at, *changelog.marks)

    def _begin(
        self, place: TopicPartition, replica: PartitionReplica, changelog: Changelog, asked_at: float
    ) -> bool:
        """Follow a replica that has just been opened, if its rows can be used."""
        owned, local = place.topic in self._own, replica.local()
        load = plan_replica(changelog, local, asked_at, owned=owned)
        if owned and changelog.marks.low > 0 and (local is None or load.discard):
            log.warning(
                "standby disabled: changelog truncated",
                table=place.topic,
                partition=place.partition,
                begins=changelog.marks.low,
            )
            self._refuse(place)
        elif load.discard:
            self._discard(place, load.discard)
        else:
            replica.follow(changelog.topic, load.read_from)
            self._reader.add(replica)
            return True
        return False

    def _mend(self, place: TopicPartition, replica: PartitionReplica) -> None:
        if replica.store.release_requested:
            log.debug("another process needs the store of this partition", **place._asdict())
            self._refuse(place)
        elif isinstance(replica.failure, StoreCorrupted):
            self._discard(place, replica.failure.message)
        elif isinstance(replica.failure, InputLost):
            self._refuse(place)  # what of it may be used is decided when it is opened again
        elif replica.failure is not None:
            raise replica.failure

    def _discard(self, place: TopicPartition, reason: str) -> None:
        """Discard the rows of a replica and load it again."""
        replica = self._forget(place)
        assert replica is not None
        try:
            replica.discard(reason)
        except StoreInUse:  # another process was quicker
            self._refuse(place)
        else:
            self._replicas[place] = replica

    def _refuse(self, place: TopicPartition) -> None:
        self._drop(place)
        self._refused_until[place] = self._clock.monotonic() + _REFUSED_SECONDS

    def _drop(self, place: TopicPartition) -> None:
        if (replica := self._forget(place)) is not None:
            replica.close()

    def _forget(self, place: TopicPartition) -> PartitionReplica | None:
        replica = self._replicas.pop(place, None)
        self._paused.discard(place)
        if replica is not None:
            self._reader.remove(replica)
        return replica
