"""The type of the generated record constants, such as `USER_CLICK`."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RecordSchema(Generic[T]):
    """An Avro record schema, bound to the type of its rows.

    Attributes:
        row: The `TypedDict` of a row.
        name: The full name of the record.
        schema: The schema as JSON text, to read and write with.
        fingerprint: The CRC-64-AVRO fingerprint of its parsing canonical form, as an unsigned number.
        history: All released versions of the schema as JSON texts, oldest first.
    """

    row: type[T]
    name: str
    schema: str
    fingerprint: int
    history: tuple[str, ...]
