"""Every target passes the conformance suite."""

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from streamtable_sinks import MemoryTarget, SinkChange, SinkTarget
from streamtable_sinks.postgres import Postgres
from streamtable_sinks.testing import TargetSuite


class TestMemory(TargetSuite):
    @pytest.fixture(autouse=True)
    def _target(self) -> None:
        self.target = MemoryTarget()

    def client(self) -> SinkTarget:
        return self.target

    def numbers(self) -> Sequence[tuple[str, int]]:
        return [(change.key, change.value["number"]) for _, change in self.target.applied]


class TestPostgresAppends(TargetSuite):
    @pytest.fixture(autouse=True)
    def _database(self, database: str) -> None:
        self.url = database
        with psycopg.connect(database) as session:
            session.execute(
                "CREATE TABLE suite (serial bigserial, key text, number bigint CHECK (number >= 0), text text)"
            )

    def client(self) -> SinkTarget:
        return Postgres(self.url, "suite", columns=lambda key, value: {"key": key, **value})

    def numbers(self) -> Sequence[tuple[str, int]]:
        with psycopg.connect(self.url) as session:
            return session.execute("SELECT key, number FROM suite ORDER BY serial").fetchall()

    def bad(self) -> SinkChange:
        return SinkChange("a", {"number": -1, "text": None}, 1, 0)


class TestPostgresUpserts(TargetSuite):
    keyed = True

    @pytest.fixture(autouse=True)
    def _database(self, database: str) -> None:
        self.url = database

    def client(self) -> SinkTarget:
        return Postgres(self.url, "suite", key=("key",), create=True)

    def numbers(self) -> Sequence[tuple[str, int]]:
        with psycopg.connect(self.url) as session:
            found: list[Any] = session.execute(
                'SELECT key, number FROM suite ORDER BY key COLLATE "C"'
            ).fetchall()
        return found

    def bad(self) -> SinkChange:
        return SinkChange("b", {"number": 1 << 70, "text": None}, 1, 0)
