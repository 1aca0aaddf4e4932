"""PostgreSQL as the target of a sink, exactly once. Needs the extra `postgres`."""

from streamtable_sinks.postgres.target import Postgres

__all__ = ["Postgres"]
