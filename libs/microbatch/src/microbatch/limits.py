"""The limits that complete a batch."""

from dataclasses import dataclass

from streamtable.errors import GraphError

_LONGEST_WAIT_S = 3_600.0


@dataclass(frozen=True)
class Limits:
    """The limits of a partition's batch: it is complete when it reaches the first of them.

    Args:
        records: The number of records of all inputs together.
        bytes: The bytes of their keys and values. A single record may be larger.
        seconds: The seconds since the batch's first record arrived.
    """

    records: int = 10_000
    bytes: int = 16 << 20
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.records < 1 or self.bytes < 1 or not 0 <= self.seconds <= _LONGEST_WAIT_S:
            raise GraphError(
                f"{self}: a batch has at least 1 record and 1 byte, and waits for 0 to {_LONGEST_WAIT_S:g} s"
            )
