"""Decides how a partition's tables are recovered: from where, to where, and when to refuse. Pure functions.

The rules; without any one of them, data was lost or doubled:

- Read to the position in the committed offsets' metadata, the largest over the inputs; not to the last stable
  offset, which may still be behind a commit that has returned.
- Read to the end of the log if an offset has no metadata (set by a tool) or was committed at least once.
- No committed offset and an empty changelog: a new partition. No committed offset but a changelog: the offsets have
  expired or were deleted; starting over would count everything twice, so stop. The same if only one input has
  none, but the local copy has applied some of it: the broker forgets the offsets of a topic that is deleted.
- The local copy is discarded only if it is beyond the end, of another topic, or older than the topic keeps
  tombstones; a copy of another's table also if records were deleted behind the topic's start since it was loaded.
- An offset is of one topic, not of a name: the metadata names the topics that were read. The same if only one input
  has no offset, but the metadata of the others' say that it was read.
- A joined table is another's, and can always be loaded again. Where its changes are handled, it is loaded to the
  committed offset and not beyond, or a change would go by unhandled.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from streamtable.base.event_time import InputTime
from streamtable.base.ports import TopicInfo
from streamtable.base.types import Committed, NextOffset, TopicPartition, Watermarks
from streamtable.errors import InputLost, StateLost
from streamtable.tables.kept import OWN, KeptRecord
from streamtable.tables.position import LocalPosition, TablePosition
from streamtable.tables.seen import SeenInputs


@dataclass(frozen=True)
class InputState:
    """The state of one input partition before its task starts.

    Attributes:
        committed: The group's stable committed offset; None if there is none.
        marks: The low and high watermark of the partition.
        start: The offset where a new group begins.
        topic_id: The topic's present id; "" if it is not to be compared.
        purged: Whether only what the group has committed is ever deleted from it.
    """

    committed: Committed | None
    marks: Watermarks
    start: Literal["earliest", "latest"] = "earliest"
    topic_id: str = ""
    purged: bool = False

    @cached_property
    def position(self) -> TablePosition | None:
        """The position that was committed with the offset; None if there is no offset, or a tool has set it."""
        return TablePosition.decode(self.committed.metadata) if self.committed else None


@dataclass(frozen=True)
class Changelog:
    """A partition of a changelog: the topic, and the low and high watermark."""

    topic: TopicInfo
    marks: Watermarks


@dataclass(frozen=True)
class Load:
    """The recovery of one table: the range of changelog offsets to read.

    Attributes:
        discard: The reason why the local copy must be deleted first; None if it can be used.
        read_from: The first offset to read.
        read_to: The offset where the table is ready; equal to `read_from` if there is nothing to read.
        exactly: Whether no record at `read_to` or beyond may be applied.
    """

    discard: str | None = None
    read_from: int = 0
    read_to: int = 0
    exactly: bool = False


@dataclass(frozen=True)
class RecoveryPlan:
    """The recovery of a partition: the offsets of its inputs and the recovery of its tables.

    Attributes:
        next_offsets: The next offset of each input.
        uncommitted: Whether the group has never committed an offset of some input. Then commit `next_offsets` before the
            first record.
        loads: The recovery of each table that the group keeps; see `plan`.
        times: The event time that was committed with the offset of each input, for the inputs that have one.
        records: For each input, the record of the tables that the group keeps and has kept.
        repeats: Whether tables may hold rows of records that will be handled again: commits are or were at least once.
        seen: The ids of the inputs that the group has read; see `SeenInputs.ids`.
    """

    next_offsets: Mapping[str, NextOffset]
    uncommitted: bool
    loads: Mapping[str, Load] = field(default_factory=dict)
    times: Mapping[str, InputTime] = field(default_factory=dict)
    records: Mapping[str, KeptRecord] = field(default_factory=dict)
    repeats: bool = False
    seen: Mapping[str, str] = field(default_factory=dict)


def plan(
    partition: int,
    inputs: Mapping[str, InputState],
    tables: Mapping[str, tuple[Changelog, LocalPosition | None]],
    *,
    exactly_once: bool,
    now: float,
) -> RecoveryPlan:
    """Decide how the partition recovers.

    Args:
        partition: Its number, for messages.
        inputs: The inputs, by topic.
        tables: The changelog of each table that the group keeps, and the checkpoint of the store on disk, None if there is
            none; by name, which is `kept.OWN` of the group's own table.
        exactly_once: The guarantee the process runs with.
        now: Seconds since 1970.

    Raises:
        StateLost: There is a table but no offsets that fit it, or the changelog has been cut.
        InputLost: A committed input offset is outside of its topic, or has gone though others have not.
    """
    offsets = {
        topic: _next_offset(TopicPartition(topic, partition), state) for topic, state in inputs.items()
    }
    # Also of a single input that was added to the graph: with start="latest" a crash before its first commit would
    # otherwise skip what had arrived until then.
    uncommitted = any(state.committed is None for state in inputs.values())
    loads = {
        name: _load(partition, inputs, name, changelog, local, exactly_once, now)
        for name, (changelog, local) in tables.items()
    }
    positions = {topic: state.position for topic, state in inputs.items()}
    times = {topic: each.time for topic, each in positions.items() if each and each.time}
    repeats = not (exactly_once and _is_exact(inputs))
    seen = SeenInputs.recorded(state.committed for state in inputs.values())
    return RecoveryPlan(offsets, uncommitted, loads, times, repeats=repeats, seen=seen)


def _load(
    partition: int,
    inputs: Mapping[str, InputState],
    name: str,
    changelog: Changelog,
    local: LocalPosition | None,
    exactly_once: bool,  # noqa: FBT001 - passed on
    now: float,
) -> Load:
    """Decide how to recover a table that the group keeps."""
    new = all(state.committed is None for state in inputs.values())
    if new and changelog.marks.high > 0:
        raise StateLost(
            f"the table holds {changelog.marks.high} changes, but the group has no committed offset for "
            f"{', '.join(sorted(inputs))}: offsets expire after a week without members (offsets.retention.minutes), "
            "or were deleted. Starting over would count everything twice. Set the group's offsets to where the table "
            "stands, or delete the table to rebuild it"
        ).at(changelog.topic.name, partition)
    target = 0 if new else _target(partition, inputs, name, changelog, exactly_once=exactly_once)
    discard = why_discard(changelog, local, now) if local else None
    if local and not discard:
        _refuse_forgotten(partition, inputs, local)
    start = local.changelog if local and not discard else 0
    if start < changelog.marks.low:
        if changelog.topic.compacted and target > start:
            raise StateLost(
                f"records {start} to {changelog.marks.low} of the table's changelog have been deleted, though a "
                "compacted topic loses none by itself (DeleteRecords?); restore the topic or rebuild the table"
            ).at(changelog.topic.name, partition)
        start = changelog.marks.low
    return Load(discard, start, max(start, target))


def plan_join(
    partition: int,
    table: Changelog,
    local: LocalPosition | None,
    committed: Committed | None,
    changes_from: Literal["earliest", "latest"] | None,
    now: float,
) -> Load:
    """Decide how a partition of a joined table is recovered.

    Args:
        partition: Its number, for messages.
        table: The topic, and its watermarks.
        local: The checkpoint of the store on disk; None if there is none.
        committed: The group's committed offset in the table's topic.
        changes_from: None if no edge handles the changes; else the treatment of existing rows by a new group.
        now: Seconds since 1970.

    Returns:
        To the end if no edge handles the changes; else to the committed offset, where the consumer continues.

    Raises:
        InputLost: Changes are handled, and the committed offset is outside of the topic.
    """
    marks = table.marks
    load = plan_replica(table, local, now)
    if changes_from is None:
        return load
    place = TopicPartition(table.topic.name, partition)
    end = _next_offset(place, InputState(committed, marks, changes_from))
    if local and not load.discard and local.changelog > end:
        reason = f"it is at {local.changelog}, beyond {end}, where the group continues"
        load = Load(reason, marks.low)
    return Load(load.discard, load.read_from, end, exactly=True)


def plan_replica(table: Changelog, local: LocalPosition | None, now: float, *, owned: bool = False) -> Load:
    """Decide how a replica is brought to the end of its topic. `owned`: its rows stay when their records are gone."""
    marks = table.marks
    discard = why_discard(table, local, now) if local else None
    if local and not discard:
        discard = behind_start(marks.low, replace(local, begins=marks.low) if owned else local)
    return Load(discard, local.changelog if local and not discard else marks.low, marks.high)


def _refuse_forgotten(partition: int, inputs: Mapping[str, InputState], local: LocalPosition) -> None:
    for topic, state in inputs.items():
        if state.committed is None and (applied := local.inputs.get(topic)):
            raise InputLost(
                "the group has no committed offset for this input, but its table holds what came before offset "
                f"{applied}: the topic was deleted and created again, or the offset was deleted. Starting over could "
                "count everything twice. Set the group's offset to where it is to continue, or rebuild the table"
            ).at(topic, partition)


def refuse_recreated(partition: int, inputs: Mapping[str, InputState]) -> None:
    """Compare the inputs with the topics of the committed offsets.

    Raises:
        InputLost: One was deleted and created again, or has lost its end.
    """
    own = {
        topic: SeenInputs.decode(state.committed.metadata) if state.committed else None
        for topic, state in inputs.items()
    }
    known = [seen for seen in own.values() if seen is not None]
    for topic, state in inputs.items():
        seen, lost = own[topic], ""
        if state.committed is None:
            if any(each.knows(topic) for each in known):
                lost = "the group has no committed offset for this input any more, but has read it before: it"
        elif seen is not None:
            if state.topic_id and seen.is_other(topic, state.topic_id):
                lost = f"the group's offset {state.committed.next_offset} is of an earlier topic of this name: it"
            elif state.marks.high < seen.end:
                lost = f"the topic ended at {seen.end} when the group last committed, and ends at {state.marks.high} now: it"
        if lost:
            raise InputLost(
                f"{lost} was deleted and created again, or lost records. Starting over could count twice, continuing could "
                "leave records out. Set the group's offset to where it is to continue, or rebuild the table"
            ).at(topic, partition, state.committed.next_offset if state.committed else None)


def _next_offset(place: TopicPartition, state: InputState) -> NextOffset:
    low, high = state.marks
    if state.committed is None:
        if state.purged and low > 0:
            raise InputLost(
                f"the group has no committed offset for this input, and the topic begins at {low}: the group had "
                "read and deleted the records before, and its offsets are gone. Starting here would skip records. Reset this group "
                "('streamtable group reset') with --to latest --empty-table, then the group that writes the topic with --to earliest"
            ).at(*place, low)
        return NextOffset(low if state.start == "earliest" else high)
    offset = state.committed.next_offset
    if low <= offset <= high:
        return offset
    raise InputLost(
        f"the group continues at offset {offset}, but the topic holds {low} to {high}: "
        + (
            "records were deleted (retention) before they were processed. "
            if offset < low
            else "it was deleted and created again, or lost its end. "
        )
        + "Set the group's offset to accept the loss"
    ).at(*place, offset)


def _target(
    partition: int, inputs: Mapping[str, InputState], name: str, changelog: Changelog, *, exactly_once: bool
) -> int:
    known = [state.position for state in inputs.values() if state.position]
    # Offsets committed before the group had this table, or after it has left it, do not name it; it is then read to its
    # end: another input that names it may have been committed last long before the table was left.
    reached = [_own(position) if name == OWN else position.tables.get(name, -1) for position in known]
    furthest = max(reached, default=0)
    if furthest > changelog.marks.high:
        raise StateLost(
            f"the group has committed the table's position {furthest}, but its changelog ends at "
            f"{changelog.marks.high}: the topic was deleted, or has lost its end. Restore it, or rebuild the table"
        ).at(changelog.topic.name, partition)
    exact = exactly_once and _is_exact(inputs) and min(reached, default=0) >= 0
    return furthest if exact else changelog.marks.high


def _is_exact(inputs: Mapping[str, InputState]) -> bool:
    """Return whether the group itself has committed all offsets, exactly once."""
    committed = [state for state in inputs.values() if state.committed]
    return all(state.position and state.position.exact for state in committed)


def _own(position: TablePosition) -> int:
    return -1 if OWN in position.record.left else position.changelog


def why_discard(changelog: Changelog, local: LocalPosition, now: float) -> str | None:
    """Return the reason why a local copy must not be used; None if it may be. `now` is in seconds since 1970."""
    topic, marks = changelog.topic, changelog.marks
    if local.topic_id != topic.topic_id:
        return f"it belongs to an earlier topic of the same name (id {local.topic_id}, now {topic.topic_id})"
    if local.changelog > marks.high:
        return f"it is at {local.changelog}, beyond the changelog's end {marks.high}"
    age = now - local.current_at
    if age * 1000 > topic.delete_retention_ms:
        return (
            f"it was last complete {age:.0f} s ago, and the topic keeps tombstones for "
            f"{topic.delete_retention_ms / 1000:.0f} s: deleted keys would come back"
        )
    return None


def behind_start(low: int, local: LocalPosition) -> str | None:
    """Return the reason to load a copy again after records were deleted (retention, DeleteRecords); None if there is none.

    Records that were deleted beyond the copy's position were never applied to it. Those before it are no longer in the
    table, but still in the copy, where nothing shows which rows those are.
    """
    if local.changelog < low:
        return f"it is at {local.changelog}, and the topic begins at {low} now: the deleted records were never read"
    if (local.begins or 0) < low:
        return (
            f"it was loaded when the topic began at {local.begins or 0}, and the topic begins at {low} now: rows whose "
            "records were deleted would stay"
        )
    return None
