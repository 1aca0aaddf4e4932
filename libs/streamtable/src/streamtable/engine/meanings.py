"""What the state tables of a group mean, recorded with them: the group's named table `states`.

A table is read with the codecs, and by the rules, that it was written with. A program that has changed them is stopped
before it reads the first row.

Keys: the name of a state, for its meaning, as text.
"""

from collections.abc import Iterable
from typing import Any

from streamtable.engine.named import NamedTable
from streamtable.errors import StateMeaningChanged
from streamtable.graph import Group
from streamtable.ports import Codec
from streamtable.state import State


class StateRecords(NamedTable):
    """What is recorded of the state tables in one partition."""

    def check(self, group: Group[Any, Any]) -> None:
        """Compare the states of a group with what they meant when their rows were written, and record new ones.

        Raises:
            StateMeaningChanged: A state means something else now.
        """
        for state in group.states:
            recorded, meaning = self.get(state.name.encode()), meaning_of(state)
            if recorded is None:
                self.put(state.name.encode(), meaning.encode())
            elif recorded != meaning.encode():
                raise StateMeaningChanged(
                    state=state.name,
                    group=group.name,
                    recorded=recorded.decode(errors="replace"),
                    declared=meaning,
                    topic=group.named_topic(state.name),
                )


def meaning_of(state: State[Any, Any]) -> str:
    """Return what is recorded for a state: what its rows can be read with."""
    return "; ".join(_parts(state))


def _parts(state: State[Any, Any]) -> Iterable[str]:
    yield f"{_codec(state.key)} to {_codec(state.value)}"
    if state.meaning:
        yield state.meaning


def _codec(codec: Codec[Any]) -> str:
    """The name of a codec; its own text, if it has one that is the same in each process."""
    return type(codec).__name__ if type(codec).__repr__ is object.__repr__ else repr(codec)
