"""The position of a partition, in the two places that record it: offset metadata and the local store.

- With every committed input offset goes, as its *metadata*, the changelog offset that the same commit reached. Kafka
  keeps both in one record, so "inputs applied" and "table position" are known together, atomically, to everybody:
  recovery ends there, a reader's own write is waited for there, audits cut there.
- In the local store, in the same write as the rows: the offsets that the rows include.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from re import fullmatch
from typing import Any

import orjson

from streamtable.base.event_time import NO_TIME, InputTime
from streamtable.base.ports import TopicInfo
from streamtable.base.watermarks import PRODUCERS_MAX
from streamtable.errors import StoreCorrupted
from streamtable.tables.kept import OWN, KeptRecord
from streamtable.tables.seen import SeenInputs

_METADATA_BYTES_MAX = 4_000  # of the 4 KB that Kafka gives to the metadata of an offset
_TIME_BYTES_MAX = 80  # of the event time without its producers
_IDLE_BYTES_MAX = 1_000  # of the producers that are idle


@dataclass(frozen=True, slots=True)
class TablePosition:
    """The metadata of a committed input offset.

    Attributes:
        changelog: The changelog offset after the last record of the commit.
        exact: Committed exactly once; if not, the changelog may hold records beyond `changelog` that were never
            committed and have displaced older ones, so a reader must go to the end.
        tables: The same offset in the changelog of each named table of the group, by the table's name. A position that was
            committed before the group had a table does not name it.
        seen: The identity of the input topics; None if it was committed by a tool or an older version.
        time: The event time that the input and the task have reached; None if the group does not use event time.
        record: The tables that the group keeps and has kept, and up to where they have seen the input.
    """

    changelog: int
    exact: bool
    tables: Mapping[str, int] = field(default_factory=dict)
    seen: SeenInputs | None = None
    time: InputTime | None = None
    record: KeptRecord = field(default_factory=KeptRecord)

    def encode(self) -> str:
        document: dict[str, Any] = {"changelog": self.changelog, "exact": self.exact}
        if self.tables:
            document["tables"] = dict(self.tables)
        if self.seen is not None:
            document["seen"] = self.seen.encode()
        document |= self.record.document()
        if self.time is not None:
            room = _METADATA_BYTES_MAX - len(orjson.dumps(document))
            document["time"] = _time_document(self.time, room)
        return orjson.dumps(document).decode()

    def end_of(self, group: str, table: str) -> int | None:
        """Return the offset after the commit's last record in one of the group's changelog topics; None if it is not known."""
        own, name = f"{group}-{OWN}", table.removeprefix(f"{group}-")
        return self.changelog if table == own else self.tables.get(name)

    @staticmethod
    def decode(metadata: str) -> "TablePosition | None":
        """Return the position, or None for metadata that is not ours: the offset was set by another tool."""
        try:
            match orjson.loads(metadata):
                case {"changelog": int(changelog), "exact": bool(exact), **more} if changelog >= 0:
                    tables, record = _positions(more.get("tables", {})), KeptRecord.read(more)
                    seen, time = SeenInputs.read(more.get("seen")), _input_time(more.get("time"))
                    found = None if tables is None else (changelog, exact, tables, seen, time, record)
                    return found and TablePosition(*found)
        except orjson.JSONDecodeError:
            return None
        return None


def rebuilt(changelog: int, tables: Mapping[str, int], time: InputTime | None) -> TablePosition:
    """Return the position of a group's tables that a tool has made: they have seen all records before the input's offset.

    Args:
        changelog: The end of the changelog of the group's own table.
        tables: The end of the changelog of each named table.
        time: The event time of the input.
    """
    record = KeptRecord(kept=dict.fromkeys((OWN, *tables), ""))
    return TablePosition(changelog, exact=True, tables=tables, time=time, record=record)


def _positions(found: object) -> dict[str, int] | None:
    """Return changelog offsets by name, if the document holds them."""
    if isinstance(found, dict) and all(type(offset) is int and offset >= 0 for offset in found.values()):
        return found
    return None


def _time_document(time: InputTime, room: int) -> list[Any]:
    """Return the event time as a document: for producers, how far each is ahead of the least, and which are idle.

    Kafka bounds the metadata of an offset. If there are more producers than fit, the time of the input is stored for all:
    they then count as less far than they are, until they say more.
    """
    document: list[Any] = [time.stream_ms, time.watermark_ms]
    if time.producers_ms:
        least, idle = min(time.producers_ms), f"{sum(1 << number for number in time.idle):x}"
        ahead = [at - least for at in time.producers_ms]
        room -= _TIME_BYTES_MAX
        if len(idle) > min(_IDLE_BYTES_MAX, room):
            idle = "0"  # all are waited for, until they say again that they are idle
        if len(orjson.dumps(ahead)) + len(idle) > room:
            document += [time.stream_ms, len(ahead)]
        else:
            document += [least, ahead]
        if time.idle:
            document.append(idle)
    return document


def _input_time(found: object) -> InputTime | None:
    """Return the committed event time, also if a later version wrote it with more fields; None for anything else."""
    match found:
        case [int() as stream_ms, int() as watermark_ms, *more] if min(stream_ms, watermark_ms) >= NO_TIME:
            producers = _producers(more)
            times = InputTime(stream_ms, watermark_ms, producers, _idle(more, len(producers)))
            return None if any(isinstance(each, bool) for each in times) else times
    return None


def _producers(found: list[Any]) -> tuple[int, ...]:
    match found:
        case [int() as least, int() as number, *_] if least >= NO_TIME and 0 < number <= PRODUCERS_MAX:
            return (least,) * number
        case [int() as least, [*ahead], *_] if least >= NO_TIME and all(
            type(each) is int and each >= 0 for each in ahead
        ):
            return tuple(least + each for each in ahead)
    return ()


def _idle(found: list[Any], producers: int) -> frozenset[int]:
    """Return the numbers of the producers that are idle: the bits of a hexadecimal number."""
    match found:
        case [_, _, str() as digits, *_] if fullmatch("[0-9a-f]+", digits):
            bits = int(digits, 16)
            return frozenset(number for number in range(producers) if bits >> number & 1)
    return frozenset()


@dataclass(frozen=True, slots=True)
class LocalPosition:
    """The checkpoint of a local store, written atomically with its rows.

    Attributes:
        changelog: The store is complete below this changelog offset.
        topic_id: The topic id of the changelog; a different id means that the topic was deleted and created again.
        current_at: The time when the store was last known to be complete, in seconds since 1970. A copy that is older
            than the topic's retention of tombstones would bring deleted keys back.
        inputs: The next offsets of the inputs that the rows include, by topic.
        partitions: The number of partitions, so that a view finds keys while no broker is reachable; 0 if not needed.
        whole: Whether the store has ever been complete: false while a copy is loaded for the first time.
        begins: The first offset of the topic when the rows were loaded; None if it is not known. Rows whose records have
            been deleted since then are still in the copy, but no longer in the topic.
        prefix_header: The header whose prefixes the stored values begin with; "": values are as in the records.
    """

    changelog: int
    topic_id: str
    current_at: float
    inputs: Mapping[str, int] = field(default_factory=dict)
    partitions: int = 0
    whole: bool = True
    begins: int | None = None
    prefix_header: str = ""

    @classmethod
    def of(cls, topic: TopicInfo, changelog: int, current_at: float, **more: Any) -> "LocalPosition":
        """Return the checkpoint of a store of a topic as it is now; `more`: the other attributes."""
        return cls(changelog, topic.topic_id, current_at, partitions=topic.partitions, **more)

    def encode(self) -> bytes:
        # A deployment may go back to an earlier version, which does not know the last field.
        known = {name: value for name, value in asdict(self).items() if value or name != "prefix_header"}
        return orjson.dumps(known)

    @staticmethod
    def decode(checkpoint: bytes) -> "LocalPosition":
        """Return the position. Raises `StoreCorrupted` for anything but what `encode` made."""
        try:
            match LocalPosition(**orjson.loads(checkpoint)):
                case LocalPosition(
                    int(), str(), int() | float(), dict(), int(), bool(), int() | None, str()
                ) as position:
                    return position
        except (orjson.JSONDecodeError, TypeError) as error:
            raise StoreCorrupted(f"the store's checkpoint is unreadable: {error}") from error
        raise StoreCorrupted(f"the store's checkpoint is not one of ours: {checkpoint[:200]!r}")
