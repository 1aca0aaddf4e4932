"""Named tables: what the engine keeps for a group beside its public table, each in a compacted topic `<group>-<name>`.

They are written in the transaction of the group's table, and their positions are committed with its. Rows are bytes.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from streamtable.engine.due import indexed
from streamtable.engine.ids import expanded
from streamtable.graph import IDS, Group
from streamtable.ports import Store
from streamtable.tables.replica import Expand


class Named(Protocol):
    """A partition of a named table at work. What was not committed can be dropped as a whole."""

    store: Store

    @property
    def changed_bytes(self) -> int:
        """About how many bytes the next commit will write."""
        ...

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """The records for the changelog."""
        ...

    def rows(self, changes: list[tuple[bytes, bytes | None]]) -> Any:
        """The rows for the local store that these records make."""
        ...

    def committed(self) -> None:
        """The changes are in the store now."""
        ...

    def forget(self) -> None:
        """Drop what came since the last commit."""
        ...


def expansions(group: Group[Any, Any]) -> Mapping[str, Expand]:
    """What makes the rows of local stores, by changelog, where they are not the records."""
    found = {group.named_topic(IDS): expanded} if IDS in group.named_tables else {}
    return found | {
        group.named_topic(state.name): indexed(state.due) for state in group.states if state.due is not None
    }
