"""The limits of a question about rows, who can be asked, and what an answer says."""

from collections.abc import Mapping, Sequence
from typing import Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from contracts.grpc.query.v1 import query_pb2
from streamtable.errors import RetryLater
from streamtable_query.owners import PartitionOwner
from streamtable_query.sources import Kind

V = TypeVar("V")

Source = Literal["local", "instance", "standby", "view"]
SOURCES: Final[Mapping[Kind, Source]] = {"task": "instance", "standby": "standby", "view": "view"}
"""The names of sources in answers over the network."""
KINDS: Final[Mapping["query_pb2.Source.ValueType", Kind]] = {
    query_pb2.SOURCE_TASK: "task",
    query_pb2.SOURCE_STANDBY: "standby",
    query_pb2.SOURCE_VIEW: "view",
}
TIMEOUT_SECONDS: Final = 10.0
MAX_AGE_SECONDS: Final = 5.0


class PartitionMoved(RetryLater):
    """A partition moved to another process between two pages of a strict range: read the range again."""


class QueryAnswer(NamedTuple, Generic[V]):
    """A committed row, with how far and how old it is.

    Attributes:
        value: The row; None if the key has none.
        partition: The partition of the key.
        offset: The row holds everything below this offset in the table's topic.
        age_seconds: All that was committed until this many seconds before the answer is in the row: the group's coordinator
            confirmed then that the process has the partition, a processor of this process committed then, or the copy had
            everything then.
        source: "instance": the process that has the partition has answered; "local": it is this process; "standby": a standby
            copy; "view": a member of a shared view.
        address: The address of that process; "" for this one.
    """

    value: V | None
    partition: int
    offset: int
    age_seconds: float
    source: Source
    address: str = ""


class Routes(Protocol):
    """Knows which processes can answer for a partition; see `PartitionOwners.routes`."""

    def routes(
        self, partition: int, partitions: int, since: float, deadline: float, *, copies: bool
    ) -> Sequence[PartitionOwner]: ...


class Asking(NamedTuple):
    """The limits of one call: a monotonic time, and seconds; and the table's topic as it is known at its beginning."""

    deadline: float
    max_age: float
    stale_ok: float | None
    partitions: int = 0
    topic_id: str = ""
