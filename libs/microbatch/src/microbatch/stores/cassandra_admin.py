"""Creates and examines the keyspace and the table of rows in Cassandra."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.port import Step, StoreFinding, ok, problem, warning
from streamtable.errors import ConfigurationError

_DAY = 86_400
_COLUMNS = {
    "tenant": ("text", "partition_key"),
    "key": ("blob", "partition_key"),
    "data": ("blob", "regular"),
}
_SAFE_REPLICAS = 3


class CassandraAdmin:
    """Creates and examines one table.

    Args:
        driver: The driver of the store; closed by its owner.
        replicas: The number of replicas by datacenter; required to create a keyspace.
        forgets_after: How many seconds a deleted row rejects lower numbers, for a new table.
    """

    def __init__(
        self, driver: CassandraDriver, *, replicas: Mapping[str, int] | None, forgets_after: int
    ) -> None:
        self.driver = driver
        self._replicas = replicas
        self._forgets_after = forgets_after

    def plan(self) -> Sequence[Step]:
        keyspace, table = self.driver.place
        steps = []
        if not self._keyspace():
            if self._replicas is None:
                known = ", ".join(sorted(self._datacenters()))
                raise ConfigurationError(
                    f"the keyspace {keyspace} must be created: give the parameter replicas, the number in each "
                    f"datacenter; the cluster has {known}"
                )
            unknown = self._replicas.keys() - self._datacenters()
            if unknown:
                raise ConfigurationError(
                    f"there is no datacenter {', '.join(sorted(unknown))}, only {', '.join(sorted(self._datacenters()))}"
                )
            counts = ", ".join(f"{count} replicas in {name}" for name, count in self._replicas.items())
            steps.append(Step("keyspace", keyspace, counts))
        if not self._table():
            columns = ", ".join(f"{name} {kind}" for name, (kind, _) in _COLUMNS.items())
            steps.append(Step("table", table, f"{columns}; deletions are kept for {self._forgets_after} s"))
        return steps

    def create(self) -> None:
        if self.plan():
            self.driver.create(self._replicas or {}, forgets_after=self._forgets_after)

    def examine(self) -> Iterator[StoreFinding]:
        """Examine keyspace, table, replicas, and whether an acknowledged write is on disk."""
        ((version,),) = self.driver.ask("SELECT release_version FROM system.local")
        yield ok("server", f"Cassandra {version}")
        keyspace, table = self.driver.place
        found, options = self._keyspace(), self._table()
        if not found or not options:
            what = f"there is no {'table' if found else 'keyspace'} {keyspace}{'.' + table if found else ''}"
            yield problem("table", what, "create it: streamtable store create")
            return
        yield self._copies(found[0])
        if not found[0][1]:
            advice = f"ALTER KEYSPACE {keyspace} WITH durable_writes = true"
            yield problem("disk", "writes bypass the log: a crash loses them", advice)
        else:
            yield self._disk()
        yield self._columns()
        yield from self._options(options[0])
        self.driver.read([b"check"], 10)
        yield ok("rows", "may be read")

    def _keyspace(self) -> list[Any]:
        return self.driver.ask(
            "SELECT replication, durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s",
            self.driver.place[:1],
        )

    def _table(self) -> list[Any]:
        return self.driver.ask(
            "SELECT gc_grace_seconds, default_time_to_live FROM system_schema.tables "
            "WHERE keyspace_name = %s AND table_name = %s",
            self.driver.place,
        )

    def _datacenters(self) -> set[str]:
        rows = self.driver.ask("SELECT data_center FROM system.local")
        return {name for (name,) in [*rows, *self.driver.ask("SELECT data_center FROM system.peers")]}

    def _copies(self, row: Any) -> StoreFinding:
        replication = dict(row[0])
        strategy = replication.pop("class", "").rpartition(".")[2]
        shown = f"{strategy}, {', '.join(f'{name}: {count}' for name, count in replication.items())}"
        required = self._replicas or {}
        less = [name for name, count in required.items() if int(replication.get(name, 0)) < count]
        if less:
            return problem("replicas", f"{shown}; fewer than required", "alter the keyspace")
        if strategy != "NetworkTopologyStrategy":
            return warning("replicas", shown, "use NetworkTopologyStrategy")
        if min(map(int, replication.values()), default=0) < _SAFE_REPLICAS:
            advice = "use 3, so that a quorum survives the loss of one"
            return warning("replicas", shown, advice)
        return ok("replicas", shown)

    def _disk(self) -> StoreFinding:
        rows = self.driver.ask("SELECT value FROM system_views.settings WHERE name = 'commitlog_sync'")
        policy = rows[0][0] if rows else "unknown"
        if policy in {"batch", "group"}:
            return ok("disk", "each write is on it before it is acknowledged")
        return warning(
            "disk",
            f"commitlog_sync is {policy}: if all replicas lose power at once, seconds of acknowledged writes are lost",
            "set commitlog_sync to batch or group, or place replicas apart",
        )

    def _columns(self) -> StoreFinding:
        rows = self.driver.ask(
            "SELECT column_name, type, kind FROM system_schema.columns "
            "WHERE keyspace_name = %s AND table_name = %s",
            self.driver.place,
        )
        if {name: (kind, role) for name, kind, role in rows} == _COLUMNS:
            return ok("table", "as required")
        return problem("table", "its columns differ from the required ones", "use another table")

    @staticmethod
    def _options(row: Any) -> Iterator[StoreFinding]:
        grace, ttl = row
        if grace < _DAY:
            advice = f"set {_DAY} s, longer than any process can stall"
            yield warning("deletions", f"are forgotten after {grace} s", advice)
        if ttl:
            fact = f"are gone after {ttl} s, whatever the URL says"
            yield problem("rows", fact, "alter the table: default_time_to_live = 0")
