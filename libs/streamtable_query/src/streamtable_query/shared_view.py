"""A view of a table that is larger than a machine: several processes hold a share of it each, and answer for one another."""

from collections.abc import Mapping
from functools import partial
from typing import Final, TypeVar, cast

import grpc

from streamtable import App, Kafka, Table
from streamtable.base.clock import Clock, SystemClock
from streamtable.base.settings import legal_instance_id
from streamtable.errors import ConfigurationError, NotReady
from streamtable_query.address import advertise, own_address
from streamtable_query.answers import MAX_AGE_SECONDS, TIMEOUT_SECONDS, Asking
from streamtable_query.asking import TableQueries
from streamtable_query.channels import Channels
from streamtable_query.metrics import QueryMetrics
from streamtable_query.owners import PartitionHolders
from streamtable_query.server import QueryServer
from streamtable_query.shard import Shard

K = TypeVar("K")
V = TypeVar("V")

_STALE_SECONDS: Final = 30.0
_MEMORY_BYTES: Final = 64 << 20
_PAUSE_SECONDS: Final = 0.05


class SharedView(TableQueries[K, V]):
    """A share of a table in this process, and answers for all of it: by this process or by the others with the same name.

        with SharedView(app, ORDERS.table, shared="big-readers", address="pod-3.readers:7070") as orders:
            orders.wait_ready(60)
            orders.get("alice")

    The processes are the members of the consumer group `<shared>-<table>`, which says who they are; nothing is read or committed by
    it. Each holds its share of the partitions in `<state_dir>/shared/<shared>`, and answers for them by the protocol of
    `QueryServer`. While a partition is loading here, another process that holds it answers.

    It needs the permissions READ and DESCRIBE_CONFIGS on the table's topic, READ on the group, and DESCRIBE on groups whose names begin
    with the group's and a hyphen.

    Args:
        app: The cluster and the state folder.
        table: The table.
        shared: The name that all members have in common.
        address: `host:port` where the other members reach this process, or `:port`, as for `advertise`.
        replicas: The members that hold each partition. With 2, any one may be lost without a gap.
        listen: `host:port` to listen on; None: the port of `address` on all interfaces.
        serve: Whether it listens. False: a server of the process, such as one for several tables, answers for `shard`
            (`add_query_service`).
        timeout: The seconds that a call may take.
        stale_ok: The age in seconds up to which a replica answers. All replicas are compared with the topic each second.
        memory_bytes: The memory for the caches of the replicas.
        credentials: TLS of the members as clients of each other; None: plain text.
        server_name: The name that the certificates of the members must have; None: the host of its address.
        server_credentials: TLS of the members as servers, with client certificates if only those may ask; None: plain text.
        metadata: Sent with each call.
        metrics: Counts the answers of other processes; None: nothing does.
        clock: Wall and monotonic time.

    Raises:
        ConfigurationError: The name, the address or the number of replicas is not usable, or the port is taken.
    """

    def __init__(
        self,
        app: App,
        table: Table[K, V],
        shared: str,
        address: str,
        *,
        replicas: int = 2,
        listen: str | None = None,
        serve: bool = True,
        timeout: float = TIMEOUT_SECONDS,
        stale_ok: float = _STALE_SECONDS,
        memory_bytes: int = _MEMORY_BYTES,
        credentials: grpc.ChannelCredentials | None = None,
        server_name: str | None = None,
        server_credentials: grpc.ServerCredentials | None = None,
        metadata: Mapping[str, str] | None = None,
        metrics: QueryMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        try:
            legal_instance_id(shared)
        except ValueError as error:
            raise ConfigurationError(f"shared={shared!r}: expected {error}") from error
        if not replicas >= 1:
            raise ConfigurationError(f"replicas={replicas!r}: give at least 1")
        at, clock = own_address(address), clock or SystemClock()
        kafka, group = cast("Kafka", app.kafka), f"{shared}-{table.name}"
        self.shard = Shard(
            advertise(kafka, address),
            table,
            group,
            str(at).replace(":", "-"),
            replicas,
            app.state_dir / "shared" / shared,
            memory_bytes,
            clock,
        )
        listening = f"0.0.0.0:{at.port}" if listen is None else listen
        self._server = QueryServer(self.shard, listening, credentials=server_credentials) if serve else None
        super().__init__(
            kafka,
            table,
            group,
            table.group,
            partial(PartitionHolders, group, table.name, replicas=replicas),
            self.shard,
            Asking(timeout, MAX_AGE_SECONDS, stale_ok),
            copies=True,
            channels=Channels(credentials, server_name, metadata, metrics, table.name),
            clock=clock,
        )
        if self._server is not None:
            try:
                self._server.start()
            except ConfigurationError:
                self.close()
                raise

    @property
    def not_ready(self) -> str:
        """The reason why this process cannot answer for all of its own share; empty if it can."""
        return self.shard.not_ready

    def wait_ready(self, timeout: float) -> None:
        """Wait until this process holds its share of the table as of now. Raises `NotReady` with what is missing."""
        self._here.check()
        deadline = self._clock.monotonic() + timeout
        while reason := self.not_ready:
            if self._clock.monotonic() >= deadline:
                raise NotReady(f"the share of {self.table.name!r} is not ready after {timeout:g} s: {reason}")
            self._clock.sleep(_PAUSE_SECONDS)

    def check(self) -> None:
        """Raise the error that has stopped this process's own part, if one has."""
        self.shard.check()

    def close(self) -> None:
        """Answer no more, leave the other members, and close the replicas. May be called twice."""
        if self._here.elsewhere:  # in a forked process there is nothing to close
            return
        if self._server is not None:
            self._server.stop()
        self.shard.close()
        super().close()
