"""Created keyspaces and tables, and the findings about others."""

import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from microbatch.stores.cassandra import CassandraDriver
from microbatch.stores.cassandra_admin import CassandraAdmin
from microbatch.stores.port import Severity, StoreFinding
from streamtable.errors import ConfigurationError

pytestmark = pytest.mark.broker


class Keyspace:
    """A keyspace of this test alone."""

    def __init__(self, port: int) -> None:
        self.name = f"k{uuid.uuid4().hex[:8]}"
        self.driver = CassandraDriver(["127.0.0.1"], port=port, keyspace=self.name, table="rows", tenant="t")

    def admin(self, replicas: Mapping[str, int] | None = None) -> CassandraAdmin:
        return CassandraAdmin(self.driver, replicas=replicas, forgets_after=100_000)

    def found(self, replicas: Mapping[str, int] | None = None) -> dict[str, StoreFinding]:
        return {each.subject: each for each in self.admin(replicas).examine()}


@pytest.fixture
def keyspace(server_of: Callable[[str], Any]) -> Iterator[Keyspace]:
    made = Keyspace(server_of("cassandra").port)
    yield made
    made.driver.ask(f"DROP KEYSPACE IF EXISTS {made.name}", timeout=60)
    made.driver.close()


def test_the_plan_lists_what_create_then_creates(keyspace: Keyspace) -> None:
    admin = keyspace.admin({"datacenter1": 1})
    steps = admin.plan()
    assert [(step.what, step.name) for step in steps] == [("keyspace", keyspace.name), ("table", "rows")]
    assert steps[0].settings == "1 replicas in datacenter1"
    assert "100000 s" in steps[1].settings
    admin.create()
    assert admin.plan() == []
    admin.create()
    found = keyspace.found({"datacenter1": 1})
    assert {name for name, each in found.items() if each.level is not Severity.OK} == {"replicas", "disk"}
    assert found["replicas"].level is Severity.WARNING
    assert "commitlog_sync is periodic" in found["disk"].fact
    assert keyspace.found({"datacenter1": 3})["replicas"].level is Severity.PROBLEM


def test_without_replicas_or_with_an_unknown_datacenter_nothing_is_created(keyspace: Keyspace) -> None:
    with pytest.raises(ConfigurationError, match="the cluster has datacenter1"):
        keyspace.admin().create()
    with pytest.raises(ConfigurationError, match="no datacenter dc9, only datacenter1"):
        keyspace.admin({"dc9": 3}).create()
    assert keyspace.found()["table"].level is Severity.PROBLEM


def test_a_foreign_table_is_a_problem(keyspace: Keyspace) -> None:
    place = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    keyspace.driver.ask(
        f"CREATE KEYSPACE {keyspace.name} WITH replication = {place} AND durable_writes = false", timeout=60
    )
    keyspace.driver.ask(
        f"CREATE TABLE {keyspace.name}.rows (tenant text, key blob, data blob, more text, PRIMARY KEY ((tenant, key))) "
        "WITH gc_grace_seconds = 60 AND default_time_to_live = 5",
        timeout=60,
    )
    found = list(keyspace.admin().examine())
    levels = {(each.subject, each.level) for each in found}
    assert {
        ("disk", Severity.PROBLEM),
        ("table", Severity.PROBLEM),
        ("deletions", Severity.WARNING),
        ("rows", Severity.PROBLEM),
        ("replicas", Severity.WARNING),
    } <= levels
