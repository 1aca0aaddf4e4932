"""The codec of Debezium's change envelopes, and of flattened records."""

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from copy import copy
from hashlib import md5
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

import msgspec
from msgspec import Raw, Struct, defstruct

from streamtable.errors import DeserializationError, Fatal, GraphError, SerializationError
from streamtable_capture.change import DatabaseChange, DatabaseSource, SourceTransaction
from streamtable_capture.registry import RegistryFraming, RegistryRecords
from streamtable_capture.rows import UNREADABLE, OneByOne, Plan, RowType
from streamtable_capture.schemas import Schemas, semantics

T = TypeVar("T")

PLACEHOLDER = "__debezium_unavailable_value"
_WITH_SCHEMA = "a message with a schema: declare schemas=True"
_NO_ENVELOPE = "no envelope, as it has no op: declare flattened=True if the connector flattens its records"

_NO_OP = "the flattened record has no __op, so it may be of a snapshot or not: set add.fields=op,lsn (or your database's position); else declare repeats='apply'"

_ADDED = re.compile(r"__(deleted|op|table|lsn|ts_ms|source_.*|transaction_.*)")
"""The fields that a connector adds to a flattened row; others that begin with two underscores may be columns of the table."""


class Truncated(Fatal):
    """A table was truncated in the database. The record has no key, so it reaches one partition of the topic only.

    Args:
        table: The table.
        lsn: The position of the truncation in PostgreSQL's log; None elsewhere.
    """

    def __init__(self, table: str, lsn: int | None) -> None:
        self.table, self.lsn = table, lsn
        super().__init__(
            f"table {table!r} was truncated at position {lsn}, and rows of all partitions are affected: this record says so in one "
            "alone. Declare Capture(truncate='clear'); or empty the captured table ('streamtable group reset GROUP --to latest --empty-table') and take a new "
            "snapshot, or skip the record ('streamtable group skip') if the rows are to stay"
        )


class _Columns(Struct, kw_only=True):
    """An envelope whose row is converted column by column."""

    op: str
    after: dict[str, Any] | None = None
    before: Raw = Raw(b"null")
    source: DatabaseSource = DatabaseSource()
    transaction: SourceTransaction | None = None
    ts_ms: int | None = None


class _Marks(Struct, kw_only=True, rename=lambda name: f"__{name}"):
    """The fields that `ExtractNewRecordState` adds to a row: with its default prefix, and `add.fields` of the envelope or the source."""

    deleted: str | bool = False
    op: str | None = None
    table: str = ""
    source_table: str = ""
    source_schema: str = ""
    lsn: int | None = None
    source_lsn: int | None = None
    ts_ms: int | None = None
    source_ts_ms: int = 0
    source_file: str | None = None
    source_pos: int | None = None
    source_row: int | None = None
    source_gtid: str | None = None
    source_server_id: int | None = None

    def source(self) -> DatabaseSource:
        return DatabaseSource(
            schema=self.source_schema,
            table=self.source_table or self.table,
            ts_ms=self.source_ts_ms,
            lsn=self.lsn if self.lsn is not None else self.source_lsn,
            file=self.source_file,
            pos=self.source_pos,
            row=self.source_row,
            gtid=self.source_gtid,
            server_id=self.source_server_id,
        )


class _Unavailable:
    """The placeholders of connectors for a value that the database did not send, in columns of all types.

    Args:
        text: The connector's `unavailable.value.placeholder`.

    Attributes:
        marks: What the text of a record with such a value contains: one of these.
    """

    def __init__(self, text: str) -> None:
        data, hstore = text.encode(), {text: text}
        encoded, numbers = b64encode(data), list(data)  # numbers are equal to those of an array of float
        digest = md5(data, usedforsecurity=False).digest()
        uuid = str(UUID(bytes=digest, version=3))  # of an array: Java's UUID.nameUUIDFromBytes
        texts = (text, encoded.decode(), msgspec.json.encode(hstore).decode())
        self._forms = (*texts, data, hstore, [text], [encoded.decode()], [data], [uuid], numbers)
        arrays = (b"[" + b",".join(form % byte for byte in data) for form in (b"%d", b"%d.0"))
        self.marks = (data, encoded, uuid.encode(), *arrays)

    def columns(self, row: Mapping[str, Any], known: Mapping[str, object]) -> tuple[str, ...]:
        """Return the columns of a row that are unavailable, of those that are known; of all if none are."""
        forms = self._forms
        return tuple(name for name, value in row.items() if value in forms and (not known or name in known))


class Debezium(OneByOne[DatabaseChange[T]], Generic[T]):
    """The codec of changes that a Debezium connector writes; its values are `DatabaseChange`.

    Args:
        row: The class of the rows: a `msgspec.Struct`, a dataclass or a `TypedDict` with a field for each column that you want,
            or `dict` for rows as the connector wrote them. A column that the class does not have is passed over.
        schemas: Where the schemas are. False: the records are JSON without them. True: they are in each record
            (`value.converter.schemas.enable`, Connect's default). `Confluent(registry)` or another framing of
            `streamtable_codecs`: in a registry, of Avro, Protobuf or JSON Schema. Values of Debezium's semantic types are
            converted as a schema in the record, or Avro's, says; otherwise as the fields are annotated.
        flattened: Whether the connector flattens its records with the transformation `ExtractNewRecordState`. Give it
            `add.fields=op,lsn,source.ts_ms` (or the position of your database) and `delete.tombstone.handling.mode=rewrite`. Name
            other fields with their origin, as `source.txId`: for rows that are a `dict`, a shorter name is a column of the table.
        table: The table that the topic must be of, such as `public.customers`; others are poison. "": any.
        unavailable: What to do with a change without the values of columns that it left alone. "refuse": it is poison, as
            nobody can tell the row. "keep": the change names them in `unavailable`, as `Capture` needs it.
        placeholder: The connector's `unavailable.value.placeholder`.

    Raises:
        GraphError: The class cannot be a row, or the placeholder cannot be found in JSON.
    """

    def __init__(
        self,
        row: type[T],
        *,
        schemas: bool | RegistryFraming = False,
        flattened: bool = False,
        table: str = "",
        unavailable: Literal["refuse", "keep"] = "refuse",
        placeholder: str = PLACEHOLDER,
    ) -> None:
        self.rows: RowType[T] = RowType(row)
        self.schemas, self.flattened, self.table = schemas, flattened, table
        if unavailable not in {"refuse", "keep"}:
            raise GraphError(f"Debezium has unavailable={unavailable!r}: give 'refuse' or 'keep'")
        self.unavailable: Literal["refuse", "keep"] = unavailable
        escaped = msgspec.json.encode(placeholder)[1:-1] != placeholder.encode()
        # In a registry's records the columns alone are compared.
        if isinstance(schemas, bool) and (escaped or max(placeholder, default="") > "\uffff"):
            raise GraphError(
                f"Debezium has placeholder={placeholder!r}: give one without characters that JSON escapes, such as quotes"
            )
        self.placeholder = placeholder
        self._truncations = self._ordered = False
        self._unavailable = _Unavailable(placeholder)
        self._change: Any = defstruct(
            "DatabaseChange",
            [("after", row | None, None)],
            bases=(DatabaseChange,),
            namespace={"rows": self.rows},
            kw_only=True,
            rename={"raw_before": "before"},
        )
        self._envelope: msgspec.json.Decoder[DatabaseChange[T]] = msgspec.json.Decoder(self._change)
        self._columns = msgspec.json.Decoder(_Columns)
        self._flat_marks = msgspec.json.Decoder(_Marks)
        self._by_schema: Schemas[Plan] = Schemas(self._plan_of)
        self._registered: RegistryRecords | None = None
        if not isinstance(schemas, bool):
            self._registered = RegistryRecords(schemas, self.rows.plan, flattened=flattened)

    @property
    def prefix_header(self) -> str:
        """See `ports.HeaderPrefix`."""
        return "" if isinstance(self.schemas, bool) else self.schemas.prefix_header

    def keeping(self, *, truncations: bool, ordered: bool = False) -> "Debezium[T]":
        """Return the same codec with `unavailable="keep"`.

        Args:
            truncations: They are changes like others, instead of errors.
            ordered: Positions are compared, so a change that does not say whether it is of a snapshot is poison.
        """
        found = copy(self)
        found.unavailable, found._truncations = "keep", truncations  # noqa: SLF001 - of its own class
        found._ordered = ordered  # noqa: SLF001 - of its own class
        return found

    def encode(self, value: DatabaseChange[T]) -> bytes:
        """Return an envelope as a connector writes it, for tests. Raises `SerializationError` for other forms of changes."""
        if self.schemas or self.flattened or self.rows.own_plan:
            raise SerializationError(f"{self!r} writes no changes: a database's are written by its connector")
        body = {"before": value.raw_before, "after": value.after, "source": value.source}
        try:
            others = {"transaction": value.transaction, "op": value.op, "ts_ms": value.ts_ms}
            return msgspec.json.encode({**body, **others})
        except (TypeError, ValueError, AttributeError) as error:
            raise SerializationError(f"{self!r}: {error}") from error

    def decode(self, data: bytes) -> DatabaseChange[T]:
        try:
            records = self._registered
            change = self._of_json(data) if records is None else self._of_fields(*records.read(data))
        except UNREADABLE as error:
            if "required field `op`" in str(error):
                with_schema = not self.schemas and b'"payload"' in data[:20_000]
                raise DeserializationError(_WITH_SCHEMA if with_schema else _NO_ENVELOPE) from error
            raise self.rows.unfit(error) from error
        self._check(change)
        return change

    def _of_json(self, data: bytes) -> DatabaseChange[T]:
        plan = self.rows.own_plan
        if self.schemas:
            plan, data = self._by_schema.split(data)
        if data == b"null":  # a tombstone behind a transformation, as Connect writes it without schemas
            return DatabaseChange(op="d")
        careful = bool(plan) or any(mark in data for mark in self._unavailable.marks)
        return (self._flat if self.flattened else self._whole)(data, plan, careful=careful)

    def _check(self, change: DatabaseChange[T]) -> None:
        """Raise the error of a change that is not for its readers."""
        if self.table and change.source.qualified_table not in {self.table, ""}:
            raise DeserializationError(
                f"a change of table {change.source.qualified_table!r}, not of {self.table!r}: give each table a topic of its own"
            )
        if change.op == "t" and not self._truncations:
            raise Truncated(change.source.qualified_table, change.source.lsn)
        if change.unavailable and self.unavailable == "refuse":
            names, table = ", ".join(map(repr, change.unavailable)), change.source.qualified_table
            raise DeserializationError(
                f"the value of {names} in table {table!r} is unavailable: the change left it alone, and the database did not send it. "
                f"Read the topic with Capture, which has the row, or set ALTER TABLE {table} REPLICA IDENTITY FULL"
            )

    def _plan_of(self, schema: Mapping[str, Any]) -> Plan:
        fields = schema.get("fields", [])
        if not self.flattened:
            after = [each for each in fields if each.get("field") == "after"]
            fields = after[0].get("fields", []) if after else []
        return self.rows.plan(semantics(fields))

    def _whole(self, data: bytes, plan: Plan, *, careful: bool) -> DatabaseChange[T]:
        """Decode an envelope; `careful`: its columns may have to be converted, or be unavailable."""
        return self._made(self._columns.decode(data), plan) if careful else self._envelope.decode(data)

    def _made(self, found: _Columns, plan: Plan) -> DatabaseChange[T]:
        made: DatabaseChange[T] = self._change(
            op=found.op,
            source=found.source,
            transaction=found.transaction,
            ts_ms=found.ts_ms,
            raw_before=found.before,
        )
        if found.after is not None:
            self._fill(made, found.after, plan)
        return made

    def _of_fields(self, fields: dict[str, Any], plan: Plan) -> DatabaseChange[T]:
        """Make a change of the fields of a record whose schema is in a registry."""
        if self.rows.plain:
            fields = msgspec.to_builtins(fields)  # as JSON has them, with bytes in base64
        if self.flattened:
            return self._flattened(msgspec.convert(fields, _Marks), lambda: fields, plan)
        if "op" not in fields:
            raise DeserializationError(_NO_ENVELOPE)
        before = Raw(msgspec.json.encode(fields.get("before")))
        return self._made(msgspec.convert({**fields, "before": before}, _Columns), plan)

    def _flat(self, data: bytes, plan: Plan, *, careful: bool) -> DatabaseChange[T]:
        """Decode a flattened record."""

        def columns() -> dict[str, Any] | None:
            return msgspec.json.decode(data, type=dict[str, Any]) if careful or self.rows.plain else None

        return self._flattened(self._flat_marks.decode(data), columns, plan, data)

    def _flattened(
        self, marks: _Marks, columns_of: Callable[[], dict[str, Any] | None], plan: Plan, data: bytes = b""
    ) -> DatabaseChange[T]:
        """Make a change of a flattened record. `columns_of`: returns its columns, or None if it is in `data` and needs no care."""
        gone = marks.deleted in {True, "true"} or marks.op == "d"
        made: DatabaseChange[T] = self._change(
            op="d" if gone else marks.op or "u", source=marks.source(), ts_ms=marks.ts_ms
        )
        if gone:
            return made
        if marks.op is None and self._ordered:
            raise DeserializationError(_NO_OP)
        if (columns := columns_of()) is None:
            made.after = self.rows.row(data, {})
            return made
        if self.rows.plain:
            columns = {name: value for name, value in columns.items() if not _ADDED.fullmatch(name)}
        self._fill(made, columns, plan)
        return made

    def _fill(self, change: DatabaseChange[T], columns: dict[str, Any], plan: Plan) -> None:
        """Give a change its row; or, if columns are unavailable, the others."""
        change.unavailable = self._unavailable.columns(columns, self.rows.fields)
        if not change.unavailable:
            change.after = self.rows.made(columns, plan)
            return
        known = {name: value for name, value in columns.items() if name not in change.unavailable}
        change.known = self.rows.convert(known, plan)

    def __repr__(self) -> str:
        schemas = self.schemas if isinstance(self.schemas, bool) else type(self.schemas).__name__
        given = f", schemas={schemas}" if schemas else ""
        return f"Debezium({self.rows}{given}{', flattened=True' if self.flattened else ''})"
