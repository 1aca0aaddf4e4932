"""Named tables: state of a group beside its public table, each in a compacted topic `<group>-<name>`.

They are written in the transaction of the group's table, and their positions are committed with its. Rows are bytes.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from streamtable.base.ports import Store
from streamtable.engine.due.index import indexed
from streamtable.engine.named.ids import expanded
from streamtable.graph.group import IDS, Group
from streamtable.tables.replica import Expand


class Named(Protocol):
    """One partition of a named table. Uncommitted changes are dropped as a whole."""

    store: Store

    @property
    def changed_bytes(self) -> int:
        """About how many bytes the next commit will write."""

    def changes(self) -> list[tuple[bytes, bytes | None]]:
        """Return the records for the changelog."""

    def rows(self, changes: list[tuple[bytes, bytes | None]]) -> Any:
        """Return the rows of the local store that these records make."""

    def committed(self) -> None:
        """Forget the changes: they are in the store now."""

    def forget(self) -> None:
        """Drop the changes since the last commit."""


def expansions(group: Group[Any, Any]) -> Mapping[str, Expand]:
    """Return the functions that turn changelog records into store rows, by changelog, where the two differ."""
    found = {group.named_topic(IDS): expanded} if IDS in group.named_tables else {}
    return found | {
        group.named_topic(state.name): indexed(state.due)
        for state in group.all_states
        if state.due is not None
    }
