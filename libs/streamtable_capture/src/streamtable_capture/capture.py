"""`Capture`: the group that makes a table of a database's changes."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from streamtable import Context, Group, Input, Loop, OnError, Output, Persist, Stream, Table
from streamtable.base.clock import Clock
from streamtable.errors import GraphError
from streamtable.graph.companion import Companions
from streamtable.graph.edge import Edge
from streamtable_capture.captured import Captured, CapturedRows, PlainRows
from streamtable_capture.change import DatabaseChange
from streamtable_capture.connect_key import ConnectKey
from streamtable_capture.debezium import Debezium
from streamtable_capture.notes import DELETED, MOVES, JsonNotes, Note, key_of_move
from streamtable_capture.positions import Position, beyond, later_of, position_of
from streamtable_capture.repeats import Repeats
from streamtable_capture.truncation import CLEARED, KeysOrNone, Truncations

K = TypeVar("K")
T = TypeVar("T")
Row = Captured[T]

_DAYS_KEPT = timedelta(days=7)
_NEW_KEY, _OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


class Capture(Group[K, Captured[T]], Generic[K, T]):
    """A group whose table is a table of a database, row by row: for joins, views and flows.

    PlainRows are created, read by snapshots, updated and deleted as the changes say. Values that a change left alone, and that
    the database did not send, are taken from the row that the group has; after a change of the primary key, from the row of the
    old key. With each row the source position of its last change is kept: a change that is not beyond it, as after a restart of
    the connector, is dropped and counted.

    Args:
        name: The name of the group; its table is the topic `<name>-table`.
        stream: The connector's topic, with the values of `Debezium(T)` and the keys of `ConnectKey`.
        repeats: What to do with a change that is not beyond the position of its row: "drop" it; or "apply" all changes as they
            come, for topics whose changes have no position, or, as those of MySQL's Group Replication, none that can be compared.
        truncate: What to do when the table is truncated, if the connector says so (`skipped.operations=none`). "stop": the
            process stops with `Truncated`. "clear": all rows of before are deleted, in all partitions; the topic
            `<name>-visits` is needed for it.
        deleted_for: How long the positions of deleted rows are kept, so that a repeated change does not bring a row back: longer
            than a connector may be down. As long a row with a new key waits for the values of its old key.
        on_error: The policy for a change that cannot be applied, such as one without the value of a column that the group
            does not have either.
        version: See `Group`.

    Attributes:
        source: The connector's topic.
        repeated: The number of changes that were dropped; the metric `streamtable_capture_repeated_total` of the process.

    Raises:
        GraphError: The stream has other values than `Debezium`, or no keys; or an argument is out of its range.
    """

    def __init__(
        self,
        name: str,
        stream: Stream[K, DatabaseChange[T]],
        *,
        repeats: Literal["drop", "apply"] = "drop",
        truncate: Literal["stop", "clear"] = "stop",
        deleted_for: timedelta = _DAYS_KEPT,
        on_error: OnError = OnError.DEAD_LETTER,
        version: str = "",
    ) -> None:
        codec = stream.value
        if not isinstance(codec, Debezium):
            raise GraphError(
                f"Capture {name!r} reads {stream.name!r} with {codec!r}: give its stream value=Debezium(...)"
            )
        if repeats not in {"drop", "apply"}:
            raise GraphError(f"Capture {name!r} has repeats={repeats!r}: give 'drop' or 'apply'")
        if truncate not in {"stop", "clear"} or (truncate == "clear" and repeats == "apply"):
            raise GraphError(
                f"Capture {name!r} has truncate={truncate!r} with repeats={repeats!r}: give 'stop', or 'clear' for changes with positions"
            )
        if deleted_for <= timedelta(0):
            raise GraphError(f"Capture {name!r} has deleted_for={deleted_for!r}: give more than 0")
        self.rows, self.source = codec.rows, stream
        self.repeated = Repeats(name)
        self._drop = repeats == "drop"
        self._kept_ms = deleted_for // timedelta(milliseconds=1)
        self._keys = stream.key
        clears = truncate == "clear"
        keys: Any = KeysOrNone(stream.key) if clears else stream.key
        self._moved: Stream[K, Note] = Stream(f"{name}-loop", keys, JsonNotes(), stream.partitioner)
        self._truncations = Truncations(name, self._moved) if clears else None
        changes = Stream(
            stream.name, keys, codec.keeping(truncations=clears, ordered=self._drop), stream.partitioner
        )
        super().__init__(
            name,
            Input(changes, self._apply, tombstones=True, on_error=on_error, keyless=clears),
            Loop(self._moved, self._arrived, on_error=on_error),
            Persist(CapturedRows(self.rows)),
            DELETED,
            MOVES,
            *self._clearing(),
            version=version,
        )

    def _clearing(self) -> Sequence[Edge[Any, Any]]:
        """Return the edges of a group that clears its table."""
        if self._truncations is None:
            return ()
        return (CLEARED, self._truncations.visit(), Output(self._truncations.visits))

    def companions(self, clock: Clock, *, by_hand: bool = False) -> Companions:  # noqa: ARG002 - of other kinds
        """Return what shows the dropped changes: nothing else is done beside the records."""
        return self.repeated

    @property
    def table(self) -> Table[K, T]:  # type: ignore[override] # its rows, without the positions that the group itself keeps
        """The table of the database, as others read it."""
        own = super().table
        return Table(own.name, self._keys, PlainRows(self.rows), group=self.name, partitioner=own.partitioner)

    def changes_codec(self) -> Debezium[T]:
        """Return the codec of the connector's topic, for readers that have the rows, as this group has."""
        codec = self.source.value
        assert isinstance(codec, Debezium), "the constructor has asked for it"
        return codec.keeping(truncations=True)

    def _apply(self, ctx: Context[K, Row[T]], change: DatabaseChange[T] | None) -> None:
        """Apply a change to the row of its key."""
        position = None if change is None else position_of(change)
        if self._truncations is not None and self._is_truncation(ctx, change, position):
            return
        held = ctx.value
        if change is None or (position is None and change.deletes):
            self._tombstone(ctx, held)
            return
        note = None
        if self._drop:
            if position is None:
                ctx.fail(
                    f"the change of table {change.source.qualified_table!r} has no position to compare: flattened records need "
                    "add.fields=op,lsn (or your database's position); else declare repeats='apply'"
                )
            note = ctx.table(DELETED).get(ctx.raw_key) if held is None else None
            last = (None if note is None else note["position"]) if held is None else held.position
            if self._truncations is not None:
                last = later_of(last, self._truncations.last(ctx))
            if last is not None and self._is_repeat(ctx, held, change, position, last):
                return
        pending = None if note is None else note.get("pending")
        if change.deletes:
            self._delete(ctx, held, position, pending)
            return
        if change.unavailable:
            row = self._completed(ctx, change, held, position, pending)
        else:
            row = change.after
            if row is None:
                ctx.fail(f"a change with op {change.op!r} has no row")
            moved = pending is None and change.op == "c" and _header(ctx, _OLD_KEY)
            if (waited_for := position if moved else pending) is not None:
                self._wait_no_longer(ctx, waited_for)
        if row is not None:
            ctx.set(Captured(self.rows, row, position))

    def _is_truncation(
        self, ctx: Context[K, Row[T]], change: DatabaseChange[T] | None, position: Position | None
    ) -> bool:
        """Whether the record has no key: only a truncation may have none, and it is sent to all partitions."""
        if ctx.raw_key:
            return False
        table = "" if change is None else change.source.qualified_table
        if change is None or change.op != "t":
            ctx.fail(
                f"the record has no key, as table {table!r} has no primary key: give it one, and take a new snapshot"
            )
        if position is None:
            ctx.fail(f"the truncation of table {table!r} has no position: it says not which rows are gone")
        assert self._truncations is not None, "only groups that clear their tables ask"
        self._truncations.spread(ctx, position)
        return True

    def _is_repeat(
        self,
        ctx: Context[K, Row[T]],
        held: Row[T] | None,
        change: DatabaseChange[T],
        position: Position,
        last: Position,
    ) -> bool:
        """Whether the row, or its deletion, is as new as the change."""
        later = beyond(position, last)
        if later is None:
            ctx.fail(
                f"the position {position!r} of table {change.source.qualified_table!r} cannot be compared with {last!r} of the row: "
                "has the topic changes of two databases? If they are of MySQL's Group Replication, whose numbers have no order, declare "
                "repeats='apply' and read the topic again ('streamtable group reset GROUP --to earliest --empty-table')"
            )
        if not later:
            self.repeated.count += 1
            if change.deletes and held is not None:
                self._remember(ctx, last, tombstone=True)
        return not later

    def _tombstone(self, ctx: Context[K, Row[T]], held: Row[T] | None) -> None:
        """Delete a row whose deletion was compacted away; the tombstone of a deletion that was dropped changes nothing."""
        if held is None:
            return
        notes = ctx.table(DELETED)
        found = notes.get(ctx.raw_key)
        if found is not None and found["tombstone"]:
            notes.delete(ctx.raw_key)
            self.repeated.count += 1
        else:
            ctx.delete()

    def _delete(
        self,
        ctx: Context[K, Row[T]],
        held: Row[T] | None,
        position: Position | None,
        pending: Position | None,
    ) -> None:
        """Delete the row. If its key has changed, send its values to the new key, whose change may lack some."""
        new_key, moves = _header(ctx, _NEW_KEY), ctx.table(MOVES)
        if new_key is not None and position is not None:
            waiting = None if pending is None else moves.get(key_of_move(ctx.raw_key, pending))
            if waiting is not None:
                moves.put(key_of_move(ctx.raw_key, pending), {**waiting, "next": [new_key, position]})
            else:
                self._send(ctx, new_key, position, None if held is None else held.columns())
        elif pending is not None:
            self._wait_no_longer(ctx, pending)
        ctx.delete()
        if position is not None:
            self._remember(ctx, position, tombstone=False)

    def _completed(
        self,
        ctx: Context[K, Row[T]],
        change: DatabaseChange[T],
        held: Row[T] | None,
        position: Position | None,
        pending: Position | None,
    ) -> T | None:
        """Return the row of a change that lacks columns; None if it waits for the values of its old key."""
        moves, known, missing = ctx.table(MOVES), change.known or {}, change.unavailable
        if held is not None:
            return self._merged(ctx, change.source.qualified_table, known, missing, held.columns())
        of_move = position if pending is None else pending
        found = None if of_move is None else moves.get(key_of_move(ctx.raw_key, of_move))
        if pending is not None and found is not None and "known" in found:
            # The row has changed again while it waits.
            known = {**{name: value for name, value in found["known"].items() if name in missing}, **known}
            missing = tuple(name for name in missing if name not in known)
        elif found is not None and found.get("row") is not None:
            moves.delete(key_of_move(ctx.raw_key, of_move))
            return self._merged(ctx, change.source.qualified_table, known, missing, found["row"])
        elif found is not None or of_move is None or _header(ctx, _OLD_KEY) is None:
            ctx.fail(_unavailable(change.source.qualified_table, missing))
        if not missing:
            return self._merged(ctx, "", known, (), {})
        until, table = self._until(ctx), change.source.qualified_table
        waiting = {"known": known, "missing": missing, "table": table, "position": position, **until}
        moves.put(key_of_move(ctx.raw_key, of_move), waiting)
        note = {"position": position, "tombstone": False, "pending": of_move, **until}
        ctx.table(DELETED).put(ctx.raw_key, note)
        return None

    def _arrived(self, ctx: Context[K, Row[T]], moved: Note) -> None:
        """Complete the row that waits for the values of its old key; or keep them, if it has not come yet."""
        if self._truncations is not None and "cleared" in moved:
            self._truncations.arrived(ctx, moved["cleared"])
            return
        moves, key = ctx.table(MOVES), key_of_move(ctx.raw_key, moved["position"])
        waiting = moves.get(key)
        if waiting is None:
            moves.put(key, {"row": moved["row"], **self._until(ctx)})
            return
        if "done" in waiting:
            moves.delete(key)
            return
        if moved["row"] is None and "next" not in waiting:
            ctx.fail(_unavailable(waiting["table"], waiting["missing"]))
        row = None
        if moved["row"] is not None:
            row = self._merged(ctx, waiting["table"], waiting["known"], waiting["missing"], moved["row"])
        moves.delete(key)
        if "next" in waiting:
            new_key, position = waiting["next"]
            self._send(ctx, new_key, position, None if row is None else self.rows.columns(row))
        elif row is not None:
            ctx.set(Captured(self.rows, row, waiting["position"]))

    def _merged(
        self, ctx: Context[K, Row[T]], table: str, known: Note, missing: Sequence[str], old: Note
    ) -> T:
        # A row of before its class had a field does not have the column, and the default of the field is not its value.
        if lacking := tuple(name for name in missing if name not in old):
            ctx.fail(_unavailable(table, lacking))
        row: T = self.rows.converted({**known, **{name: old[name] for name in missing}})
        return row

    def _remember(self, ctx: Context[K, Row[T]], position: Position, *, tombstone: bool) -> None:
        """Keep the position of a deletion; `tombstone`: the one that follows it is to change nothing."""
        note = {"position": position, "tombstone": tombstone, **self._until(ctx)}
        ctx.table(DELETED).put(ctx.raw_key, note)

    def _until(self, ctx: Context[K, Row[T]]) -> Note:
        """Return the end of the time that a note is kept, and that time."""
        return {"until": ctx.timestamp_ms + self._kept_ms, "kept": self._kept_ms}

    def _send(self, ctx: Context[K, Row[T]], new_key: str, position: Position, row: Note | None) -> None:
        """Send the values of a row to its new key, which is given as the connector writes it in a header."""
        codec = self._keys
        decode = codec.decode_header if isinstance(codec, ConnectKey) else codec.decode
        ctx.loopback(self._moved, decode(new_key.encode()), {"position": position, "row": row})

    def _wait_no_longer(self, ctx: Context[K, Row[T]], position: Position) -> None:
        """Drop the values that a change of the primary key sends here, now or when they come: the row does not need them."""
        moves, key = ctx.table(MOVES), key_of_move(ctx.raw_key, position)
        found = moves.get(key)
        if found is not None and "row" in found:
            moves.delete(key)
        else:
            moves.put(key, {"done": True, **self._until(ctx)})


def _header(ctx: Context[Any, Any], name: str) -> str | None:
    """Return the text of a header; None if the record does not have it."""
    return next(
        (value.decode() for header, value in ctx.headers if header == name and value is not None), None
    )


def _unavailable(table: str, columns: tuple[str, ...]) -> str:
    names = ", ".join(map(repr, columns))
    return (
        f"the value of {names} in table {table!r} is unavailable, and the group has no row to take it from: the topic begins later, "
        f"or was compacted. Take a new snapshot, and set ALTER TABLE {table} REPLICA IDENTITY FULL"
    )
