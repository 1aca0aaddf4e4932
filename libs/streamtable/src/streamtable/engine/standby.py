"""Warm copies of the partitions that are at work elsewhere: what is assigned here next has little left to load.

All of it happens in the background thread, between the slices of recoveries. So handing a copy over to a recovery needs
no lock, and no copy moves on while the broker is asked where its topic ends.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import structlog

from streamtable.clock import Clock
from streamtable.errors import InputLost, RetryLater, StoreBroken, StoreCorrupted, StoreInUse
from streamtable.graph import Group
from streamtable.ports import Cluster, Store, Stores, TopicInfo
from streamtable.tables.changelog_reader import Follower
from streamtable.tables.localcopy import Copy
from streamtable.tables.position import LocalPosition
from streamtable.tables.recovery import Changelog, plan_join, why_discard
from streamtable.tables.replica import Expand, Replica, discard_store, open_store
from streamtable.types import TopicPartition

log = structlog.get_logger()

_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 3.0  # what has just left may come back, or be wanted by its new owner on this machine
_REFUSED_SECONDS = 10.0
_SAVE_SECONDS = 60.0
_OPENED_AT_ONCE = 4  # a store takes some 20 ms, in which no recovery goes on

Shown = Callable[[Mapping[TopicPartition, int]], None]
"""Told of how many offsets each copy has still to read, once a second."""


class Standby:
    """Copies of all partitions of some tables, but for those that are ours.

    `step`, `hand_over` and the rest belong to the background thread; `taken` and `left` to the main thread.

    Args:
        own: the tables that the group keeps, as far as they are among them; one without its beginning is not whole.
        tables: what is copied.
        cluster: asked where topics end.
        follower: the one of the process.
        stores: where tables live.
        clock: wall and monotonic time.
        shown: told how far the copies are.
        expand: by table, what makes the rows of its store, where they are not the records.
    """

    def __init__(
        self,
        own: Collection[str],
        tables: Sequence[TopicInfo],
        cluster: Cluster,
        follower: Follower,
        stores: Stores,
        clock: Clock,
        shown: Shown,
        expand: Mapping[str, Expand] | None = None,
    ) -> None:
        self._own = own
        self._expand = expand or {}
        self._tables = {table.name: table for table in tables}
        self._cluster = cluster
        self._follower = follower
        self._stores = stores
        self._clock = clock
        self._shown = shown
        self._places = {
            TopicPartition(t.name, partition) for t in tables for partition in range(t.partitions)
        }
        self._copies: dict[TopicPartition, Copy] = {}
        self._resting: set[TopicPartition] = (
            set()
        )  # not followed, for as long as partitions of ours are loading
        self._ours: set[int] = set()
        now = clock.monotonic()
        self._free_since: dict[int, float] = {}  # not ours any more
        self._refused: dict[TopicPartition, float] = {}  # when it could not be opened or followed
        self._began_at = self._saved_at = now
        self._looked_at = -_LOOK_SECONDS

    # ---- main thread -----------------------------------------------------------------------------------------------

    def taken(self, partition: int) -> None:
        """It is ours: from now on its copies are for `hand_over` only."""
        self._ours.add(partition)

    def left(self, partition: int) -> None:
        """It is not ours any more, and its stores are closed."""
        if partition in self._ours:
            self._free_since[partition] = self._clock.monotonic()
            self._ours.discard(partition)

    def keeps(self, table: str, partition: int) -> bool:
        """The state of this partition is not to be removed, wherever it is at work."""
        return (table, partition) in self._places

    # ---- background thread -----------------------------------------------------------------------------------------

    def hand_over(self, table: str, partition: int) -> Store | None:
        """The open store of a copy, which is followed no more; None if there is none."""
        copy = self._forget(TopicPartition(table, partition))
        if copy is None:
            return None
        if copy.replica is not None:
            with suppress(StoreCorrupted, StoreBroken):  # whoever recovers finds it too
                copy.replica.save(copy.replica.current_at)
        return copy.store

    def step(self, *, loading: bool) -> None:
        """A slice of the work. `loading`: partitions of ours are; they come first."""
        if not self._places:
            return
        self._pace(loading=loading)
        if self._clock.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = self._clock.monotonic()
            self._look(loading=loading)

    @property
    def behind(self) -> Mapping[TopicPartition, int]:
        """Offsets that each copy has still to read, as of the last look."""
        return {place: copy.lag for place, copy in self._copies.items()}

    @property
    def positions(self) -> Mapping[TopicPartition, int]:
        """How far each copy is."""
        return {place: copy.position for place, copy in self._copies.items()}

    @property
    def settled(self) -> bool:
        """Whatever can be copied is, and has caught up. Any thread."""
        current = all(copy.caught_up and not copy.lag for copy in list(self._copies.values()))
        return current and not any(self._missing())

    def close(self) -> None:
        """After the background thread has ended."""
        for place in list(self._copies):
            self._drop(place)

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _missing(self) -> Iterator[TopicPartition]:
        for place in sorted(self._places - self._copies.keys() - self._refused.keys()):
            if place.partition not in self._ours:
                yield place

    def _pace(self, *, loading: bool) -> None:
        for place, copy in self._copies.items():
            if copy.replica is None or copy.replica.failure is not None:
                continue
            if loading and not copy.caught_up and place not in self._resting:
                self._follower.remove(copy.replica)
                self._resting.add(place)
            elif not loading and place in self._resting:
                self._resting.discard(place)
                self._follow(copy, copy.replica, copy.position)

    def _look(self, *, loading: bool) -> None:
        for place, copy in list(self._copies.items()):
            self._mend(place, copy)
        if not loading:
            self._open_some()
        if not self._copies:
            self._shown({})
            return
        asked_at = self._clock.now()
        try:
            marks = self._cluster.watermarks(list(self._copies))
        except RetryLater as error:
            log.debug("standby cannot look at the log's end", reason=str(error))
            return
        for place, copy in list(self._copies.items()):
            changelog = Changelog(self._tables[place.topic], marks[place])
            try:
                self._compare(place, copy, changelog, asked_at)
            except StoreCorrupted as error:
                self._discard(place, error.message)
        self._shown(self.behind)
        self._save_current()

    def _open_some(self) -> None:
        now = self._clock.monotonic()
        for place, since in list(self._refused.items()):
            if now - since >= _REFUSED_SECONDS:
                del self._refused[place]
        opened = 0
        for place in self._missing():
            if now - self._free_since.get(place.partition, self._began_at) < _PAUSE_SECONDS:
                continue
            try:
                store, local = open_store(self._stores, *place, spare=True)
            except StoreInUse as error:
                log.debug("another process keeps this partition", reason=str(error))
                self._refused[place] = now
                continue
            self._copies[place] = Copy(place.partition, store, local)
            opened += 1
            if opened == _OPENED_AT_ONCE:
                return

    def _compare(self, place: TopicPartition, copy: Copy, changelog: Changelog, asked_at: float) -> None:
        """The topic ends there, as of this time."""
        replica = copy.replica
        if replica is None:
            self._begin(place, copy, changelog, asked_at)
        elif reason := self._why_discard(place, replica, changelog):
            # Also of a process that stood still: it may have missed tombstones that are gone now.
            self._discard(place, reason)
        else:
            copy.looked(asked_at, changelog.marks.high)
            if copy.caught_up and not replica.whole:
                replica.mark_whole(copy.current_at)

    def _why_discard(self, place: TopicPartition, replica: Replica, changelog: Changelog) -> str | None:
        local = LocalPosition(replica.position, changelog.topic.topic_id, replica.current_at)
        reason = why_discard(changelog, local, self._clock.now())
        return reason or (None if place.topic in self._own else replica.behind_start(changelog.marks.low))

    def _begin(self, place: TopicPartition, copy: Copy, changelog: Changelog, asked_at: float) -> None:
        checkpoint = copy.store.checkpoint()
        local = LocalPosition.decode(checkpoint) if checkpoint is not None else None
        if local is not None and place.topic in self._own:
            # Rows of the group's own table stay its rows, also when their records are gone.
            local = replace(local, begins=changelog.marks.low)
        load = plan_join(changelog, local, None, None, asked_at)
        if place.topic in self._own and changelog.marks.low > 0 and (local is None or load.discard):
            log.warning(
                "no standby of a table whose changelog has lost its beginning", table=place.topic,
                partition=place.partition, begins=changelog.marks.low,
            )  # fmt: skip
            self._refuse(place)
            return
        if load.discard:
            self._discard(place, load.discard)
            return
        copy.replica = Replica(
            changelog.topic,
            place.partition,
            copy.store,
            self._clock,
            begins=changelog.marks.low,
            expand=self._expand.get(place.topic),
        )
        copy.replica.advance(load.read_from)
        copy.looked(asked_at, changelog.marks.high)
        self._follow(copy, copy.replica, load.read_from)

    def _follow(self, copy: Copy, replica: Replica, start: int) -> None:
        self._follower.add(replica, start, lambda _: copy.advanced())

    def _mend(self, place: TopicPartition, copy: Copy) -> None:
        failure = copy.replica.failure if copy.replica is not None else None
        if copy.store.wanted:
            log.debug(
                "another process is to work on this partition", table=place.topic, partition=place.partition
            )
            self._refuse(place)
        elif isinstance(failure, StoreCorrupted):
            self._discard(place, failure.message)
        elif isinstance(failure, InputLost):
            self._refuse(place)  # what of it may be used is decided when it is opened again
        elif failure is not None:
            raise failure

    def _discard(self, place: TopicPartition, reason: str) -> None:
        """Throw it away; the next look begins anew."""
        self._refuse(place)
        with suppress(StoreInUse):  # another process was quicker
            self._copies[place] = Copy(place.partition, discard_store(self._stores, *place, reason), None)
            del self._refused[place]

    def _refuse(self, place: TopicPartition) -> None:
        self._drop(place)
        self._refused[place] = self._clock.monotonic()

    def _drop(self, place: TopicPartition) -> None:
        if (copy := self._forget(place)) is not None:
            copy.store.close()

    def _forget(self, place: TopicPartition) -> Copy | None:
        copy = self._copies.pop(place, None)
        self._resting.discard(place)
        if copy is not None and copy.replica is not None:
            self._follower.remove(copy.replica)
        return copy

    def _save_current(self) -> None:
        """Note in the stores that they are current, though nothing has changed: a copy's age decides if it is good."""
        if self._clock.monotonic() - self._saved_at < _SAVE_SECONDS:
            return
        self._saved_at = self._clock.monotonic()
        log.debug("standby", behind={f"{p.topic}[{p.partition}]": n for p, n in self.behind.items()})
        for place, copy in list(self._copies.items()):
            if copy.replica is not None and copy.caught_up and not copy.lag:
                try:
                    copy.replica.save(copy.current_at)
                except StoreCorrupted as error:
                    self._discard(place, error.message)


def copied_tables(group: Group[Any, Any]) -> list[str]:
    """The tables whose copies may be ahead of the group: joined ones not, if somebody handles their changes."""
    handled = {edge.table.name for edge in group.changes}
    return list(group.tables) + [join.table.name for join in group.joins if join.table.name not in handled]
