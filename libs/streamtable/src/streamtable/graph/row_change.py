"""A change of a joined table's row."""

from dataclasses import dataclass
from typing import Generic, TypeVar

J = TypeVar("J")


@dataclass(frozen=True, slots=True)
class RowChange(Generic[J]):
    """A change of a row of a joined table.

    Attributes:
        old: The row before the change; None if there was none.
        new: The row after the change; None if it was deleted.
    """

    old: J | None
    new: J | None
