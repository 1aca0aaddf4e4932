"""The meanings of the state tables of a group, recorded in the group's named table `states`.

A table must be read with the codecs and the rules that it was written with, or with a codec whose schema accepts all that
was written (`base.evolution`). A program that has changed them stops before it reads the first row.

The key of a meaning is the name of a state; `table` for the group's own table, if the schema of its rows is recorded; or
`timer` and the name of a timer. Its row is a text. With codecs of Avro it has a further key, its name, NUL and `avro`, for
the text with their schemas: earlier versions, whose processes may run beside, know the text without them. A state of a join
has one with `sides`, for what each side has come from. A table of timers has one with `keys`, for the codec of the keys that
they fire for. A state whose rows fall due has two more, `fired` and `kept`, for the progress of firing and deletion (`engine.due.index`).
"""

import re
from collections.abc import Iterable
from typing import Any

from streamtable.base.decoding import codec_name, codecs_name, key_codec_name
from streamtable.base.evolution import evolved, without_avro, without_schemas
from streamtable.engine.named.byte_table import NamedTable
from streamtable.errors import StateMeaningChanged
from streamtable.graph.group import Fed, Group
from streamtable.graph.state import State
from streamtable.tables.kept import OWN

_FIRED, _KEPT, _AVRO, _SIDES, _KEYS = b"fired", b"kept", b"avro", b"sides", b"keys"
_CHANGES = re.compile("changes of .*, emitted")
_UNNAMED = re.compile(b"changes of (filter|map_values), emitted")


class StateRecords(NamedTable):
    """The recorded meanings of the state tables in one partition."""

    def check(self, group: Group[Any, Any]) -> None:
        """Compare the states of a group with their recorded meanings, and record new ones.

        Raises:
            StateMeaningChanged: A state means something else now, or its schema does not accept the rows.
        """
        for state in group.all_states:
            self._check(group, state.name, meaning_of(state), group.named_topic(state.name))
            if state.name in group.fed and group.fed[state.name].sides:
                self._check_sides(group, group.fed[state.name])
        if group.persist is not None and group.rows_evolve:
            rows = codecs_name(group.key, group.persist.value)
            self._check(group, OWN, rows, group.table.name)
        for timer in group.timers:
            meaning = f"{timer.clock} time; payload {codec_name(timer.payload)}"
            name, topic = f"timer {timer.name}", group.named_topic(timer.table)
            self._check(group, name, meaning, topic)
            # Of all timers of the table: one with another name would fire for the same keys.
            self._compare(group, name, _key(timer.table, _KEYS), f"keys {key_codec_name(group.key)}", topic)

    def _check(self, group: Group[Any, Any], name: str, meaning: str, topic: str) -> None:
        plain = without_avro(meaning)
        self._compare(group, name, name.encode(), plain, topic)
        if plain != meaning:
            self._compare(group, name, _key(name, _AVRO), meaning, topic)

    def _compare(self, group: Group[Any, Any], name: str, key: bytes, meaning: str, topic: str) -> None:
        recorded = self.get(key)
        # Earlier versions have recorded the step before `every`, which may have no name, in place of the table.
        if recorded is not None and (unnamed := _UNNAMED.search(recorded)):
            meaning = _CHANGES.sub(unnamed[0].decode(), meaning)
        if recorded is None:
            self.put(key, meaning.encode())
        elif recorded != meaning.encode():
            before = recorded.decode(errors="replace")
            now, reason = evolved(before, meaning)
            if reason:
                raise StateMeaningChanged(
                    state=name,
                    group=group.name,
                    recorded=without_schemas(before),
                    declared=without_schemas(meaning),
                    topic=topic,
                    reason=reason,
                )
            if now != before:
                self.put(key, now.encode())

    def _check_sides(self, group: Group[Any, Any], fed: Fed) -> None:
        key, declared = _key(fed.name, _SIDES), " with ".join(", ".join(sorted(side)) for side in fed.sides)
        recorded = (self.get(key) or declared.encode()).decode()
        had, has = [frozenset(side.split(", ")) for side in recorded.split(" with ")], fed.sides
        both = (had, has), (has, had)
        gone, new = ([one - other for one, other in zip(*each, strict=True)] for each in both)
        # A side may get and lose streams. But its rows are of all its tables, and not of what the other side has got.
        if recorded != declared and any(
            gone[side] & new[1 - side] or (had[side].isdisjoint(has[side]) and has[side] <= fed.behind)
            for side in (0, 1)
        ):
            name, topic = group.name, group.named_topic(fed.name)
            raise StateMeaningChanged(
                state=fed.name, group=name, recorded=recorded, declared=declared, topic=topic
            )
        if self.get(key) != declared.encode():
            self.put(key, declared.encode())

    def noted(self, state: str) -> tuple[bytes, bytes]:
        """Return the progress of a state: the positions that firing, and deletion by age, have reached."""
        return self.get(_key(state, _FIRED)) or b"", self.get(_key(state, _KEPT)) or b""

    def note(self, state: str, before: tuple[bytes, bytes], now: tuple[bytes, bytes]) -> None:
        """Note the progress of a state for the next commit. `before`: the progress at the last commit."""
        for kind, former, entry in zip((_FIRED, _KEPT), before, now, strict=True):
            if entry != former:
                self.put(_key(state, kind), entry)


def _key(state: str, kind: bytes) -> bytes:
    return state.encode() + b"\0" + kind


def meaning_of(state: State[Any, Any]) -> str:
    """Return the meaning of a state as it is recorded: all that is needed to read its rows."""
    return "; ".join(_parts(state))


def _parts(state: State[Any, Any]) -> Iterable[str]:
    yield codecs_name(state.key, state.value)
    if state.due is not None:
        yield f"rows fall due by {state.due.clock} time, {'as the key' if state.due.by_key else 'as the row'} says"
    if state.meaning:
        yield state.meaning
