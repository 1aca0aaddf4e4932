"""What a generated record constant is."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordSchema(Generic[T]):
    """An Avro record schema, bound to the type of its rows.

    Attributes:
        row: the `TypedDict` of a row.
        name: full name of the record.
        schema: JSON text to read and write with.
        fingerprint: CRC-64-AVRO of its parsing canonical form, as an unsigned number.
        history: JSON texts of all released versions, oldest first.
    """

    row: type[T]
    name: str
    schema: str
    fingerprint: int
    history: tuple[str, ...]
