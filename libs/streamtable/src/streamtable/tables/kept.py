"""The record of the tables that a group has kept, in the metadata of each of its offsets. Pure functions.

Versions of a program come and go, and keep different tables. Each offset of an input therefore names the tables that
have seen all records before it, and for each other table that the group has ever kept the offset it has reached. Inner
topics, through which a flow sends records to its next group, are recorded like tables. The rules:

- A table that has not seen records which the group has handled is refused, whatever the versions between have kept.
- A table with rows that no record names is refused: the offsets have expired since, and were set again.
- A table that has never been kept begins with the records from now on, unless it follows the changes of another table that
  has rows: it would take away rows that it has never added, so it is refused.
- A topic that was deleted and created again is another table, which begins empty.
- The ids of `Once` and the values of handled rows are of one input each: another input begins with its own.
- What the declarations say of the rows is recorded too, with the steps without a name that they have come through, and with
  the source of the event time of an input. A version that says something else is refused, if there are rows; or if it has
  an inner topic, whose records may not have been read yet; or if it has handled records by other event times.
- The record is committed before the first record of a version is handled, so it is never behind the rows.
- The record is bounded. Of tables that were left long ago only the fact remains that there were some: a table with rows
  that is not in the record is then refused, and so is an inner topic.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from streamtable.base.evolution import unknown_version, versions_in
from streamtable.errors import StateLost, StateMeaningChanged, built_again
from streamtable.tables.seen import digest_of

OWN, IDS, HANDLED = "table", "ids", "handled"
"""The names of a group's own table, and of the engine's named tables whose rows are of one input each."""
_OF_ONE_INPUT = frozenset({IDS, HANDLED})
_SHARED = _OF_ONE_INPUT | {OWN, "timers", "wall-timers", "calls"}
"""The tables whose names a program does not choose: all timers of a clock share one, and so do all calls."""
_ROWS = "versions of rows"
"""Stands for the schemas of Avro of the rows of the group's own table, among the meanings; no table is named so."""
_TIME, _MADE_OF = "event time", " of"
"""Stand in the same way for the source of an input's event time, and behind a table's name for what its rows are made of."""
_LEFT_CHARS = 32  # of one table that was left, beside its name
_LEFT_CHARS_MAX = 1_100  # of the 4 KB that Kafka gives to the metadata of an offset
_MEANING_CHARS_MAX = 120
_CODECS_CHARS_MAX = 24


@dataclass(frozen=True)
class Seen:
    """A table that has not seen all of an input.

    Attributes:
        offset: The table has seen all records of the input before this offset.
        topic: The digest of the topic id of its changelog; "" if it is not known.
        lacks: Whether a version without the table has handled records, of any input.
    """

    offset: int
    topic: str = ""
    lacks: bool = False

    def document(self) -> list[Any]:
        return [self.offset, self.topic, self.lacks]

    @staticmethod
    def read(found: object) -> "Seen | None":
        """Return what `document` has made; None for anything else."""
        match found:
            case [int(offset), str(topic), bool(lacks)] if offset >= 0:
                return Seen(offset, topic, lacks)
        return None


@dataclass(frozen=True)
class KeptRecord:
    """The part of the metadata of an offset that is about the tables of the group.

    Attributes:
        kept: The tables that have seen all records of the input before the offset, by name, with the digest of their topic.
        left: The other tables that the group has kept at some time.
        meanings: The meaning of the rows that the input makes, by table.
        version: The version of the group's functions, as the program declares it.
        more: Whether the group has left more tables than are recorded.
    """

    kept: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, Seen] = field(default_factory=dict)
    meanings: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    more: bool = False

    def document(self) -> dict[str, Any]:
        """Return the parts of the metadata's JSON document; `read` reads them."""
        found: dict[str, Any] = {
            "kept": dict(self.kept),
            "left": {name: seen.document() for name, seen in self.left.items()},
            "means": dict(self.meanings),
            "version": self.version,
            "more": self.more,
        }
        return {name: each for name, each in found.items() if each}

    def with_lacks(self, tables: Collection[str]) -> "KeptRecord":
        """Return the record when these tables, which were left, lack records that were handled since."""
        if not tables:
            return self
        left = {name: replace(each, lacks=each.lacks or name in tables) for name, each in self.left.items()}
        return replace(self, left=left)

    @staticmethod
    def read(document: Mapping[Any, Any]) -> "KeptRecord":
        """Return the record in a document. Parts that are not ours count as missing."""
        version = document.get("version", "")
        return KeptRecord(
            _texts(document.get("kept")),
            {
                name: seen
                for name, each in _mapping(document.get("left")).items()
                if (seen := Seen.read(each)) is not None
            },
            _texts(document.get("means")),
            version if isinstance(version, str) else "",
            document.get("more") is True,
        )


@dataclass(frozen=True)
class Keeps:
    """A table, or an inner topic, that a version of the program keeps.

    Attributes:
        name: Its name in the record.
        topic: Its topic.
        fed_by: The inputs whose records reach it.
        behind: The tables of the group, by name, and the inputs, by topic, whose changes it follows.
        means: The meaning of its rows, by input.
        is_table: Whether its topic has the rows of each partition in the same partition.
        made_of: The tables that its rows are made of, with the steps without a name between; "" for records of streams.
    """

    name: str
    topic: str
    fed_by: frozenset[str]
    behind: frozenset[str] = frozenset()
    means: Mapping[str, str] = field(default_factory=dict)
    is_table: bool = True
    made_of: str = ""


@dataclass(frozen=True)
class TopicState:
    """The topic of a table in one partition: its id, and the end of the partition."""

    topic_id: str = ""
    end: int = 0


@dataclass(frozen=True)
class InputRecord:
    """An input when a version of the program starts.

    Attributes:
        offset: The group's next offset.
        committed: Whether the group has committed it; if not, it has handled nothing of this input.
        record: The record in the offset's metadata; None if it was set by a tool.
        handled: Whether the group has committed the offset itself, after the records before it.
    """

    offset: int
    committed: bool
    record: KeptRecord | None
    handled: bool = False


def inner_topic(topic: str) -> str:
    """Return the name of an inner topic in the record. Names of topics may be long, and no table's name begins so."""
    return ">" + digest(topic)


def is_inner_topic(name: str) -> bool:
    """Return whether a name in the record is an inner topic's."""
    return name.startswith(">")


def digest(text: str) -> str:
    """Return eight characters that stand for a text; "" for an empty one."""
    return digest_of(text) if text else ""


def bounded_meaning(text: str) -> str:
    """Return a meaning as it is recorded: a long one as its beginning and a digest."""
    if len(text) <= _MEANING_CHARS_MAX:
        return text
    return f"{text[: _MEANING_CHARS_MAX - 20]}... ({digest(text)})"


def bounded_codecs(text: str) -> str:
    """Return the codecs of an inner topic as they are recorded: a flow may have many such topics."""
    return text if len(text) <= _CODECS_CHARS_MAX else f"codecs {digest(text)}"


@dataclass(frozen=True)
class KeptTables:
    """The tables of a version of a group's program.

    Attributes:
        group: The name of the group.
        tables: Its tables and inner topics.
        version: The version of its functions.
        only_read: The inputs whose records are not handled: tables that are joined, and followed by no step.
        rows: The codecs of the group's own table with their schemas; "" if it has none.
        times: The source of the event time of inputs, by topic.
        room: The characters that the record has for tables and inner topics that this version does not keep.
    """

    group: str
    tables: Sequence[Keeps] = ()
    version: str = ""
    only_read: frozenset[str] = frozenset()
    rows: str = ""
    times: Mapping[str, str] = field(default_factory=dict)
    room: int = _LEFT_CHARS_MAX

    def continued(
        self, partition: int, inputs: Mapping[str, InputRecord], topics: Mapping[str, TopicState]
    ) -> dict[str, KeptRecord]:
        """Return the records of the inputs that this version continues with in a partition.

        Args:
            partition: Its number.
            inputs: The inputs that this version reads, by topic.
            topics: The topics of its tables.

        Raises:
            StateLost: A table lacks records that the group has handled.
            StateMeaningChanged: The rows of a table mean something else than this version declares.
        """
        records = [each.record for each in inputs.values() if each.record is not None]
        start = _Start(self, partition, inputs, topics, records)
        start.refuse_other_meanings()
        start.refuse_late_followers()
        now = {topic: start.record_of(topic) for topic in inputs}
        start.refuse_lacking()
        return now


@dataclass(frozen=True)
class _Start:
    """The start of a version in one partition."""

    program: KeptTables
    partition: int
    inputs: Mapping[str, InputRecord]
    topics: Mapping[str, TopicState]
    records: Sequence[KeptRecord]

    def record_of(self, topic: str) -> KeptRecord:
        """Return the record of an input. Raises `StateLost`."""
        there = self.inputs[topic]
        before = there.record or KeptRecord()
        kept: dict[str, str] = {}
        left: dict[str, Seen] = {}
        meanings = dict(before.meanings)
        for table in self.program.tables:
            topic_id = digest(self.topics[table.topic].topic_id)
            seen = self._seen(table, topic)
            if topic not in table.fed_by:
                if seen is not None:
                    left[table.name] = replace(seen, topic=topic_id)
                continue
            if seen is not None and seen.offset != there.offset and topic not in self.program.only_read:
                raise self._gap(
                    table,
                    f"{topic!r} up to offset {there.offset}, and it has seen that input up to {seen.offset}",
                )
            forgotten = self._is_known(table) and not self._is_recorded(table)
            if there.record is not None and table.is_table and forgotten:
                raise self._forgotten(table)
            kept[table.name] = topic_id
            meanings.pop(table.name, None)
            if table.name == OWN or topic in table.means:
                meanings[table.name] = table.means.get(topic, "")
            meanings[table.name + _MADE_OF] = table.made_of
        gone = self._gone(topic)
        # Inner topics that were left may be many, and they are refused when they come back.
        known = {*kept, *(name for name in (*left, *gone) if not is_inner_topic(name))}
        meanings = {
            name: each for name, each in meanings.items() if each and name.removesuffix(_MADE_OF) in known
        }
        meanings |= {_ROWS: rows} if (rows := versions_in(self.program.rows)) else {}
        meanings |= {_TIME: time} if (time := self.program.times.get(topic)) else {}
        return KeptRecord(kept, left | gone, meanings, self.program.version, self._has_left_more())

    def _seen(self, table: Keeps, topic: str) -> Seen | None:
        """Return up to where a table has seen an input; None: it begins now."""
        there = self.inputs[topic]
        if not there.committed:
            return Seen(there.offset) if table.name not in _OF_ONE_INPUT else None
        if there.record is None:
            return Seen(there.offset)  # a tool has set it, and is to know why
        entry = _entry(there, table.name)
        if entry is not None and self._same_topic(table, entry.topic):
            return replace(entry, lacks=False)
        if entry is None and self._is_known(table):
            return Seen(0)
        return None if topic in table.fed_by or table.name in _OF_ONE_INPUT else Seen(0)

    def _is_known(self, table: Keeps) -> bool:
        """Whether the group has kept a table before."""
        if table.name in _OF_ONE_INPUT:
            return False  # only an input's own record says that
        if table.is_table and self.topics[table.topic].end > 0:
            return True  # the record is committed before the first row: it has been forgotten
        return self._is_recorded(table) or (not table.is_table and any(each.more for each in self.records))

    def _is_recorded(self, table: Keeps) -> bool:
        entries = [_entry(each, table.name) for each in self.inputs.values()]
        return any(each is not None and self._same_topic(table, each.topic) for each in entries)

    def _same_topic(self, table: Keeps, recorded: str) -> bool:
        topic_id = digest(self.topics[table.topic].topic_id)
        return not recorded or not topic_id or recorded == topic_id

    def _gone(self, topic: str) -> dict[str, Seen]:
        """Return the tables that this version does not keep, as far as they fit."""
        there, gone = self.inputs[topic], {}
        for name, recorded in self._left().items():
            entry = _entry(there, name)
            if name in _OF_ONE_INPUT and entry is None:
                continue
            gone[name] = replace(entry or Seen(there.offset, recorded.topic), lacks=recorded.lacks)
        return gone

    def _left(self) -> dict[str, Seen]:
        """Return the tables that this version does not keep, as any input has recorded them; the same ones for all inputs."""
        kept, found, size = {each.name for each in self.program.tables}, {}, 0
        entries = [_entries(record) for record in self.records]
        # Inner topics first: for a table its rows show later that there was one.
        for name in sorted({*chain(*entries)} - kept, key=lambda each: (not each.startswith(">"), each)):
            always = name in _OF_ONE_INPUT  # nothing else says that they were there, and there are two
            size += 0 if always else len(name) + _LEFT_CHARS
            if always or size <= min(_LEFT_CHARS_MAX, self.program.room):
                recorded = [each[name] for each in entries if name in each]
                found[name] = replace(recorded[-1], lacks=any(each.lacks for each in recorded))
        return found

    def _has_left_more(self) -> bool:
        names = {*chain(*map(_entries, self.records))} - {each.name for each in self.program.tables}
        return len(names) > len(self._left()) or any(each.more for each in self.records)

    def refuse_lacking(self) -> None:
        """Raise `StateLost` if a version without a table has handled records, of an input that this one does not read."""
        for table in self.program.tables:
            if table.name in _OF_ONE_INPUT:
                continue
            entries = (_entries(record).get(table.name) for record in self.records)
            lacking = (each for each in entries if each is not None and each.lacks)
            if any(self._same_topic(table, each.topic) for each in lacking):
                raise self._gap(table, "records of another input")

    def refuse_other_meanings(self) -> None:
        """Raise `StateMeaningChanged` if the rows of a table, or the event time of an input, were made by another declaration."""
        for topic, there in self.inputs.items():
            record = there.record or KeptRecord()
            if there.offset > 0:
                time = self.program.times.get(topic, "")
                self._compare(_TIME, record.meanings.get(_TIME, ""), time, topic)
            for table in self.program.tables:
                entry = _entry(there, table.name)
                if entry is None or not self._has_rows(table, entry):
                    continue
                recorded, declared = record.meanings.get(table.name, ""), table.means.get(topic, "")
                if record.version != self.program.version:
                    recorded = f"version {record.version!r} of the program's functions"
                    declared = f"version {self.program.version!r} of the program's functions"
                own = record.meanings.get(_ROWS, "") if table.name == OWN else ""
                reason = unknown_version(own, self.program.rows) if recorded == declared else ""
                state = table.name if table.is_table else ""
                self._compare(state, recorded, declared, table.topic, reason)
                made_of = record.meanings.get(table.name + _MADE_OF, "")
                self._compare(state, made_of, table.made_of, table.topic)

    def _compare(self, state: str, recorded: str, declared: str, topic: str, reason: str = "") -> None:
        if reason or (recorded and declared and recorded != declared):
            both = {"recorded": recorded, "declared": declared, "group": self.program.group}
            raise StateMeaningChanged(state=state, topic=topic, reason=reason, **both)

    def _has_rows(self, table: Keeps, entry: Seen) -> bool:
        state = self.topics[table.topic]
        return self._same_topic(table, entry.topic) and (not table.is_table or state.end > 0)

    def refuse_late_followers(self) -> None:
        """Raise `StateLost` if a new table follows the changes of a table that has rows."""
        for table in self.program.tables:
            if not table.behind or self._is_known(table):
                continue
            for name in sorted(table.behind):
                if self._has_changed(name):
                    raise StateLost(
                        f"the step of {table.topic!r} is new, and follows the changes of {name!r}, which has rows already: it "
                        "would take away rows that it has never added. Read the table in a group of its own (flow.table(..., "
                        "group=...)), which handles the rows that are there first; or give the flow another name; or "
                        + built_again(self.program.group)
                    ).at(table.topic, self.partition)

    def _has_changed(self, name: str) -> bool:
        """Whether a table of the group has had rows, or an input with changes was handled."""
        if name in self.inputs:
            there = self.inputs[name]
            # After a reset nothing is recorded, and an offset above 0 is only where the topic begins. A version without
            # tables records none, and its offset says that it has read the rows.
            return there.offset > 0 and (there.handled or bool(there.record and _entries(there.record)))
        return any(each.name == name and self.topics[each.topic].end > 0 for each in self.program.tables)

    def _forgotten(self, table: Keeps) -> StateLost:
        return StateLost(
            f"the table holds {self.topics[table.topic].end} changes, and no offset of the group names it: the group has gone on without "
            "it since, or its offsets were set after they had expired, and records would count twice. Delete the topic and create it "
            "again, to begin empty, or give the table a new name",
            topic=table.topic,
            partition=self.partition,
        )

    def _gap(self, table: Keeps, handled: str) -> StateLost:
        reset = built_again(self.program.group)
        what = "table" if table.is_table else "inner topic"
        named = "" if table.name in _SHARED else "Give it a new name, which begins empty; or "
        empty = "delete the topic and create it again, to begin empty; or " if table.is_table else ""
        reason = (
            f"the group has kept this {what}, and has gone on without it since: a version of the program without it has "
            f"handled {handled}. {named or 'Either '}{empty}{reset}"
        )
        if not table.is_table and not self._is_recorded(table):
            reason = (
                "this inner topic may be one that the group has left, and has gone on without it since: it has left more of "
                f"them than are recorded. Give the flow another name, or {reset}"
            )
        return StateLost(reason, topic=table.topic, partition=self.partition)


def _entries(record: KeptRecord) -> dict[str, Seen]:
    """Return all tables that a record names."""
    return {name: Seen(0, topic) for name, topic in record.kept.items()} | dict(record.left)


def _entry(there: InputRecord, name: str) -> Seen | None:
    """Return up to where a table has seen an input; None if the input's record does not name it."""
    if there.record is None:
        return None
    if name in there.record.left:
        return there.record.left[name]
    return Seen(there.offset, there.record.kept[name]) if name in there.record.kept else None


def tables_left(records: Iterable[KeptRecord]) -> set[str]:
    """Return the tables that a group has kept and does not keep now. `records`: the records of all its inputs."""
    found = list(records)
    return {name for each in found for name in each.left} - {name for each in found for name in each.kept}


def unsettled(inputs: Iterable[tuple[InputRecord, KeptRecord]]) -> bool:
    """Return whether a record has to be committed before the first record is handled."""
    return any((before.record or KeptRecord()) != now for before, now in inputs)


def left_names(records: Iterable[KeptRecord]) -> list[str]:
    """Return the named tables that have not seen all of some input: those that the group has left, and some that it keeps."""
    names = {name for each in records for name in each.left}
    return sorted(name for name in names if name != OWN and not name.startswith(">"))


def _mapping(found: object) -> Mapping[str, Any]:
    return found if isinstance(found, dict) else {}


def _texts(found: object) -> dict[str, str]:
    return {name: each for name, each in _mapping(found).items() if isinstance(each, str)}
