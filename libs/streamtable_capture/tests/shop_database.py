"""A database `shop` on a real PostgreSQL, and the connectors that read it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from localkafka.connect import Connector
from localstores.postgres import PostgresServer

BIO = "b" * 2_500
"""A value that PostgreSQL stores beside the row (TOAST), so that a change that leaves it alone comes without it."""
TABLES = """
create table customers(id int primary key, name text not null, bio text, active boolean not null default true);
alter table customers alter bio set storage external;
create table lines(order_id int, line int, qty int not null, primary key(order_id, line));
create table codes(code text primary key, label varchar(20));
create type mood as enum ('sad', 'ok');
create table typed(id bigint primary key, i2 smallint, r real, d double precision, n numeric(12,2), vn numeric, b bytea, u uuid,
  j json, jb jsonb, dt date, tm time(3), tmu time(6), ts3 timestamp(3), ts timestamp, tz timestamptz, iv interval, bits bit(10),
  e mood, arr int[], pt point);
"""
CONNECTOR = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "database.hostname": "127.0.0.1",
    "database.user": "postgres",
    "database.password": "not asked for",
    "database.dbname": "shop",
    "tombstones.on.delete": "true",
}


@contextmanager
def postgres_folder() -> Iterator[Path]:
    """Yield a folder that the user `postgres` may enter, unlike pytest's own."""
    with tempfile.TemporaryDirectory(prefix="streamtable-postgres-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def connect_to(server: PostgresServer, database: str = "shop") -> psycopg.Connection[Any]:
    return psycopg.connect(server.url_of(database), autocommit=True)


def create_shop(server: PostgresServer, tables: str = TABLES) -> None:
    """Create the database with its tables."""
    with connect_to(server, "postgres") as maintenance:
        maintenance.execute("create database shop")
    with connect_to(server) as database:
        database.execute(tables)


def connector(server: PostgresServer, name: str, **settings: str) -> Connector:
    """Return a connector whose topics begin with its name."""
    own = {
        "topic.prefix": name,
        "slot.name": name.replace("-", "_"),
        "publication.name": name.replace("-", "_"),
    }
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return Connector(name, {**CONNECTOR, "database.port": server.port, **own, **given})
