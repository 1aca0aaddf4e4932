"""Queries of a group's table, answered by the process that has the partition of the key, or by a standby copy."""

from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import grpc

from streamtable import Group, Kafka, Processor, Table
from streamtable.base.clock import Clock
from streamtable.errors import GraphError
from streamtable_query.answers import MAX_AGE_SECONDS, TIMEOUT_SECONDS, Asking
from streamtable_query.asking import TableQueries
from streamtable_query.channels import Channels
from streamtable_query.metrics import QueryMetrics
from streamtable_query.owners import PartitionOwners
from streamtable_query.sources import ProcessorSource

K = TypeVar("K")
V = TypeVar("V")


class Query(TableQueries[K, V]):
    """Asks for rows of a table where they are kept: in the processors of its group. It holds no rows. Any thread.

        with Query(Kafka("127.0.0.1:9092"), ORDERS, ORDERS.table) as orders:
            orders.get("alice")

    The group's coordinator says which process has a partition; the answer is used for `max_age` seconds, and until a
    process says that the partition is not there. While a partition moves, or its process does not answer, a call waits,
    `timeout` seconds at most, and then raises `NotReady`: "no answer" never looks like "no row". With `stale_ok`, the standby
    copies of other processes answer meanwhile.

    It needs the permissions DESCRIBE on the group and on all topics that the group reads, as `follows` of a user grants them, and
    DESCRIBE and DESCRIBE_CONFIGS on the table's topic.

    Args:
        kafka: The cluster.
        group: The group.
        table: One of its tables, such as `group.table`.
        local: A processor of the group in this process: a key whose partition it has, and has committed within `max_age`,
            costs no network.
        timeout: The seconds that a call may take.
        max_age: The seconds that an answer of the coordinator is relied on. A process that was frozen for longer than its
            session may answer with rows as old as that, and no older.
        stale_ok: A standby copy answers if the process that has the partition does not, or if none has it, provided that the
            copy had everything at most this many seconds ago. None: only that process answers.
        credentials: TLS of the query servers, with a client certificate if they ask for one; None: plain text.
        server_name: The name that their certificates must have; None: the host of its address. Replicas whose host names
            are not known before they start have one certificate, such as for the name of their service.
        metadata: Sent with each call, such as an API key.
        metrics: Counts the answers of other processes; None: nothing does.
        clock: Wall and monotonic time.

    Raises:
        GraphError: The group does not keep the table.
    """

    def __init__(
        self,
        kafka: Kafka,
        group: Group[Any, Any],
        table: Table[K, V],
        *,
        local: Processor | None = None,
        timeout: float = TIMEOUT_SECONDS,
        max_age: float = MAX_AGE_SECONDS,
        stale_ok: float | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        server_name: str | None = None,
        metadata: Mapping[str, str] | None = None,
        metrics: QueryMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        if table.name not in group.tables:
            raise GraphError(
                f"group {group.name!r} does not keep the table {table.name!r}: its tables are "
                f"{', '.join(group.tables) or 'none'}"
            )
        super().__init__(
            kafka,
            table,
            group.name,
            group.name,
            partial(PartitionOwners, group.name, group.input_topics[0]),
            None if local is None else ProcessorSource(local),
            Asking(timeout, max_age, stale_ok),
            copies=False,
            channels=Channels(credentials, server_name, metadata, metrics, table.name),
            clock=clock,
        )
