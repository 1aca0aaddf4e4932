"""The table of positions, `streamtable_positions`: a row for each partition of each sink."""

from typing import Any, Final

import psycopg
import structlog
from psycopg import sql

from streamtable.errors import Migrated, RetryLater
from streamtable_sinks.target import SinkPartition, TakenPartition

log = structlog.get_logger()

TABLE: Final = sql.Identifier("streamtable_positions")
_CREATE: Final = sql.SQL(
    """CREATE TABLE IF NOT EXISTS {} (
        sink text, topic text, partition integer,
        topic_id text NOT NULL, next_offset bigint, epoch bigint NOT NULL, owner text NOT NULL, target text,
        PRIMARY KEY (sink, topic, partition))"""
).format(TABLE)
_TAKE: Final = sql.SQL(
    """INSERT INTO {} AS held (sink, topic, partition, topic_id, next_offset, epoch, owner, target)
        VALUES (%(sink)s, %(topic)s, %(partition)s, %(topic_id)s, NULL, 1, %(owner)s, %(target)s)
        ON CONFLICT (sink, topic, partition) DO UPDATE SET epoch = held.epoch + 1, owner = EXCLUDED.owner,
        target = coalesce(nullif(held.target, split_part(EXCLUDED.target, ', oid ', 1)), EXCLUDED.target)
        RETURNING epoch, next_offset, topic_id, target"""
).format(TABLE)
_HERE: Final = sql.SQL("sink = %(sink)s AND topic = %(topic)s AND partition = %(partition)s")
_FIND: Final = sql.SQL("SELECT epoch, next_offset, owner FROM {} WHERE {}").format(TABLE, _HERE)
_MOVE: Final = sql.SQL(
    "UPDATE {} SET next_offset = %(end)s WHERE {} AND epoch = %(epoch)s AND next_offset = %(start)s"
).format(TABLE, _HERE)
_SET: Final = sql.SQL(
    "UPDATE {} SET next_offset = %(end)s, topic_id = %(topic_id)s, target = %(target)s WHERE {} AND epoch = %(epoch)s"
).format(TABLE, _HERE)
_COLUMNS: Final = "SELECT attname::text FROM pg_attribute WHERE attrelid = to_regclass('streamtable_positions') AND attnum > 0"
# The row is locked by the transaction that has written it last and has not ended; that is its xmax.
_HOLDER: Final = sql.SQL(
    """SELECT lock.pid, pg_terminate_backend(lock.pid) FROM {} AS held
        JOIN pg_locks AS lock ON lock.locktype = 'transactionid' AND lock.transactionid = held.xmax AND lock.granted
        WHERE {} AND lock.pid <> pg_backend_pid()"""
).format(TABLE, _HERE)

Session = psycopg.Connection[Any]


def lock_creation(session: Session) -> None:
    """Let one session at a time create tables, until the end of its transaction.

    IF NOT EXISTS is no lock: of two sessions that both find no table, the second one violates a constraint of PostgreSQL's own.
    """
    session.execute("SELECT pg_advisory_xact_lock(hashtext('streamtable_positions'))")


def create(session: Session) -> None:
    """Create the table unless it is there; without the right to create one that is there already."""
    found = session.execute(_COLUMNS).fetchall()
    if not found:
        session.execute(_CREATE)
    elif ("target",) not in found:
        session.execute(sql.SQL("ALTER TABLE {} ADD COLUMN target text").format(TABLE))


def take(session: Session, place: SinkPartition, owner: str, target: str) -> TakenPartition:
    """Raise the epoch of a partition. See `SinkTarget.take`. There is no position if the last one is of another table.

    Args:
        session: The session.
        place: The partition.
        owner: The name of this process.
        target: The table, by its name and oid. Positions of before had neither, or its name only.
    """
    values = {**place._asdict(), "owner": owner, "target": target}
    before = session.execute(_FIND, values).fetchone()
    try:
        found = session.execute(_TAKE, values).fetchone()
    except psycopg.errors.LockNotAvailable:
        # This process has just proved in Kafka that it owns the partition: the one that holds the row is a former owner that
        # stands still in the middle of a transaction, which nothing else would end.
        try:
            ended = session.execute(_HOLDER, values).fetchall()
        except psycopg.errors.InsufficientPrivilege as error:
            reason = error.diag.message_primary
            raise RetryLater(f"a session of another role holds the position: {reason}") from error
        log.warning("session of a former owner ended", sessions=[pid for pid, _ in ended], **place._asdict())
        found = session.execute(_TAKE, values).fetchone()
    assert found is not None, "a row was written"
    epoch, position, topic_id, held = found
    if held != target:
        update = sql.SQL("UPDATE {} SET target = {} WHERE sink = {}").format(TABLE, target, place.sink)
        log.warning("sink has written another table", table=held, to_go_on=update.as_string(session))
        position = None
    return TakenPartition(epoch, position, topic_id, before[2] if before else "")


def move(session: Session, to: SinkPartition, epoch: int, start: int | None, end: int, target: str) -> None:
    """Move the position in the open transaction. Raises `Migrated` if it is another, or the epoch is."""
    values = {**to._asdict(), "epoch": epoch, "start": start, "end": end, "target": target}
    if session.execute(_SET if start is None else _MOVE, values).rowcount == 1:
        return
    now = session.execute(_FIND, values).fetchone()
    there = "no position" if now is None else f"position {now[1]} under epoch {now[0]} of {now[2]}"
    raise Migrated(
        f"the target has {there}, not position {start} under epoch {epoch}: another process has taken the partition"
    )
