"""`streamtable group compare`: compares the positions and the tables of two versions of a group."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Annotated, Any

import typer

from streamtable.base.types import TopicPartition
from streamtable.errors import StateLost
from streamtable.graph.companion import TIMER_TABLES
from streamtable.graph.group import HANDLED, IDS, STATES
from streamtable_admin.cluster import Cluster
from streamtable_admin.decode import DecodedValue, Decoder
from streamtable_admin.errors import NotFound, Refused
from streamtable_admin.lag import readable
from streamtable_admin.offsets import named_tables
from streamtable_admin.reading import read_to
from streamtable_admin.text import count, printable
from streamtable_cli.consistent_cut import Cut, Rows, apply, cuts_of
from streamtable_cli.decoding import Schemas, decoder_of
from streamtable_cli.output import AsJson, note, show_json, show_table
from streamtable_cli.session import session_of

CHUNK_OFFSETS = 1_000_000
"""The approximate number of offsets of both tables that are in memory at a time, unless one partition has more."""
INTERNAL = frozenset({IDS, HANDLED, STATES, *TIMER_TABLES.values()})
"""Internal tables of a group, in which two versions may differ."""
_SUM = 1 << 128


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A key whose rows differ; None: no row."""

    partition: int
    key: bytes
    old: bytes | None
    new: bytes | None


@dataclass
class Part:
    """The comparison of one partition of both tables.

    Attributes:
        rows: The number of rows of each.
        digests: The digest of all rows of each, independent of their order.
        differing: The keys whose rows differ.
        rewritten: The number of rows with different bytes that decode to the same value.
    """

    rows: tuple[int, int] = (0, 0)
    digests: tuple[int, int] = (0, 0)
    differing: int = 0
    rewritten: int = 0


@dataclass
class Tables:
    """The comparison of both tables.

    Attributes:
        names: The topics of both.
        decoder: Decodes their rows.
        limit: The maximum number of `differences`, which are the first ones.
    """

    names: tuple[str, str]
    decoder: Decoder
    limit: int
    parts: dict[int, Part] = field(default_factory=dict)
    differences: list[RowDifference] = field(default_factory=list)

    def sums(self, of: Callable[[Part], tuple[int, int]]) -> tuple[int, int]:
        found = [of(part) for part in self.parts.values()]
        return sum(one for one, _ in found), sum(other for _, other in found)

    @property
    def differing(self) -> int:
        return sum(part.differing for part in self.parts.values())

    @property
    def rewritten(self) -> int:
        return sum(part.rewritten for part in self.parts.values())

    def add(self, number: int, old: Rows, new: Rows) -> None:
        """Compare the rows of one partition."""
        part = self.parts[number] = Part((len(old), len(new)), (_digest(old), _digest(new)))
        if part.rows[0] == part.rows[1] and part.digests[0] == part.digests[1]:
            return
        for key in sorted(old.keys() | new.keys()):
            one, other = old.get(key), new.get(key)
            if one == other:
                continue
            if one is not None and other is not None and self._same_value(one, other):
                part.rewritten += 1
                continue
            part.differing += 1
            if len(self.differences) < self.limit:
                self.differences.append(RowDifference(number, key, one, other))

    def _same_value(self, old: bytes, new: bytes) -> bool:
        """Return whether a codec decodes both to the same value. Without a codec only equal bytes are the same."""
        one, other = (self.decoder.value(name, row) for name, row in zip(self.names, (old, new), strict=True))
        return (
            one.kind == other.kind and _alike(one.value, other.value) and not (one.problem or other.problem)
        )

    def shown(self) -> Iterator[tuple[int, DecodedValue, list[DecodedValue | None]]]:
        """Yield the partition, the key and both rows of each difference, decoded."""
        for each in self.differences:
            values = zip(self.names, (each.old, each.new), strict=True)
            rows = [None if value is None else self.decoder.value(name, value) for name, value in values]
            yield each.partition, self.decoder.key(self.names[0], each.key), rows


def compare(
    ctx: typer.Context,
    old: Annotated[str, typer.Argument(metavar="OLD", help="Name of a group.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Name of the group that is to replace it.")],
    *,
    state: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Compare this state, such as a table of a flow, instead of the groups' own tables.",
        ),
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=0,
            max=86_400,
            help="The longest wait for each partition until both groups are momentarily at the same offsets.",
        ),
    ] = 0.0,
    limit: Annotated[
        int, typer.Option(metavar="N", min=0, help="The maximum number of differing rows to show.")
    ] = 20,
    schemas: Schemas = None,
    graph: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE:NAME",
            help="A group or flow whose codecs are used for its topics; may be repeated. MODULE:FUNCTION(TEXT) if a function "
            "makes it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two versions of a group: the lag of each, and the rows of their tables.

    Compares the groups' own tables or, with --state, one of their states, such as a table of a flow; the output lists
    their states. Each table is read up to its position at the group's committed offsets. A partition is comparable if
    both groups have committed the same offsets of all topics that both read, have no lag in their own topics (loop,
    retries, visits), and no call or retried record is pending. Other partitions may differ because one group has applied
    more input; while both run, --wait compares each partition at a moment when they are at the same offsets. Rows can
    still differ if a joined table had other content when a record was joined.

    Exit code 1 if rows differ, a partition is not comparable, or a group is behind; with --wait, being behind together
    does not count.
    """
    session = session_of(ctx)
    if old == new:
        raise Refused(f"{old!r} cannot be compared with itself: name two groups")
    decoder = decoder_of(schemas, *(graph or ()))
    tables = (f"{old}-{state or 'table'}", f"{new}-{state or 'table'}")
    with session.cluster() as cluster:
        shared, cuts = cuts_of(cluster, old, new, table=state or "table", wait=wait)
        there = [name for name in tables if name in cluster.admin.topic_partitions()]
        others = [] if state else sorted({*_states(cluster, old), *_states(cluster, new)})
        found = None
        if len(there) == 2:  # noqa: PLR2004 - both
            found = Tables(tables, decoder, limit)
            _compare_tables(cluster, found, cuts)
    if len(there) == 1:
        raise Refused(f"only {there[0]!r} exists: groups with and without a table have no rows to compare")
    if state and not there:
        raise NotFound(f"there is neither {tables[0]!r} nor {tables[1]!r}: see `streamtable group describe`")
    report = _document((old, new), shared, cuts, found) | {"states_not_compared": others}
    if as_json:
        show_json(report)
    else:
        _show((old, new), cuts, found)
        _say(cuts, found, others)
    behind = wait == 0 and any(any(cut.lag) for cut in cuts)
    if behind or not report["comparable"] or (found and found.differing):
        raise typer.Exit(1)


def _states(cluster: Cluster, group: str) -> list[str]:
    """Return the states that a group had at its last commits."""
    return [name for name in named_tables(cluster.committed(group)) if name not in INTERNAL]


# ---- tables ---------------------------------------------------------------------------------------------------------


def _compare_tables(cluster: Cluster, found: Tables, cuts: Sequence[Cut]) -> None:
    tables, known = found.names, cluster.admin.topic_partitions()
    counts = [known[table] for table in tables]
    if counts[0] != counts[1]:
        raise Refused(
            f"{tables[0]} has {counts[0]} partitions and {tables[1]} {counts[1]}: keys differ in partition"
        )
    positions = {cut.partition: cut.table for cut in cuts}
    starts, ends = dict[TopicPartition, int](), dict[TopicPartition, int]()
    for side, table in enumerate(tables):
        places = [TopicPartition(table, number) for number in range(counts[0])]
        stable = readable(cluster.admin, places)
        for place, (low, high) in cluster.admin.watermarks(places).items():
            position = positions.get(place.partition, (None, None))[side]
            if position is not None and position > high:
                raise StateLost(
                    f"its group has committed the table's position {position}, but the topic ends at {high}: it was "
                    "deleted, or has lost records at its end"
                ).at(*place)
            starts[place], ends[place] = low, max(low, stable[place].high if position is None else position)
    sizes = [
        sum(ends[place] - starts[place] for place in (TopicPartition(table, number) for table in tables))
        for number in range(counts[0])
    ]
    with cluster.observer.reading(sum(sizes)) as advance:
        done = 0
        for numbers in _chunks(sizes):
            places = [TopicPartition(table, number) for table in tables for number in numbers]
            rows: dict[TopicPartition, Rows] = {place: {} for place in places}
            chunk = {place: starts[place] for place in places}
            for batch in read_to(
                cluster, chunk, {p: ends[p] for p in places}, complete=True, advance=_from(advance, done)
            ):
                apply(rows[batch.place], batch)
            done += sum(sizes[number] for number in numbers)
            for number in numbers:
                found.add(number, *(rows[TopicPartition(table, number)] for table in tables))


def _from(advance: Callable[[int], None], before: int) -> Callable[[int], None]:
    return lambda done: advance(before + done)


def _chunks(sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the partitions that are read together, by the offsets of each."""
    chunk, size = list[int](), 0
    for number, more in enumerate(sizes):
        if chunk and size + more > CHUNK_OFFSETS:
            yield chunk
            chunk, size = [], 0
        chunk.append(number)
        size += more
    yield chunk


def _digest(rows: Rows) -> int:
    """Return a digest that does not depend on the order of the rows; each key occurs once."""
    total = 0
    for key, value in rows.items():
        text = len(key).to_bytes(8, "big") + key + value
        total += int.from_bytes(blake2b(text, digest_size=16).digest(), "big")
    return total % _SUM


def _alike(one: Any, other: Any) -> bool:
    """Return whether two values are equal in JSON: true and 1, which Python takes for equal, are not, and 1 and 1.0 are."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_alike(one[name], other[name]) for name in one)
        case list(), list():
            return len(one) == len(other) and all(map(_alike, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


# ---- the report -----------------------------------------------------------------------------------------------------


def _hex(total: int) -> str:
    return f"{total % _SUM:032x}"


def _document(
    names: tuple[str, str], shared: list[str], cuts: Sequence[Cut], found: Tables | None
) -> dict[str, Any]:
    comparable = {cut.partition: cut.comparable for cut in cuts}
    compared: dict[str, Any] | None = None
    if found is not None:
        rows, digests = found.sums(lambda part: part.rows), found.sums(lambda part: part.digests)
        compared = {
            "rows": dict(zip(names, rows, strict=True)),
            "digests": dict(zip(names, map(_hex, digests), strict=True)),
            "differing": found.differing,
            "same_value_in_other_bytes": found.rewritten,
            "differences": [
                {
                    "partition": number,
                    "comparable": comparable.get(number, False),
                    "key": key.document(),
                    **{name: row and row.document() for name, row in zip(names, rows, strict=True)},
                }
                for number, key, rows in found.shown()
            ],
        }
    return {
        "groups": list(names),
        "shared_topics": shared,
        "lag": {name: sum(cut.lag[side] for cut in cuts) for side, name in enumerate(names)},
        "comparable": all(comparable.values()),
        "partitions": [_partition(cut, found) for cut in cuts],
        "tables": compared,
    }


def _partition(cut: Cut, found: Tables | None) -> dict[str, Any]:
    part = found.parts.get(cut.partition) if found else None
    return {
        "partition": cut.partition,
        "comparable": cut.comparable,
        "offsets": [cut.old, cut.new],
        "lag": list(cut.lag),
        "table_positions": list(cut.table),
        "rows": list(part.rows) if part else None,
        "digests": list(map(_hex, part.digests)) if part else None,
        "differing": part.differing if part else None,
    }


def _show(names: tuple[str, str], cuts: Sequence[Cut], found: Tables | None) -> None:
    rows = []
    for cut in cuts:
        part = found.parts.get(cut.partition, Part()) if found else Part()
        offsets = [" ".join(map(str, each.values())) for each in (cut.old, cut.new)]
        same_input = "the same" if cut.comparable else "differs"
        rows.append((cut.partition, *offsets, same_input, *cut.lag, *part.rows, part.differing))
    sides = ("input", "lag", "lag of the new", "rows", "rows of the new", "differing")
    show_table(("partition", *(f"at: {name}" for name in names), *sides), rows)
    for number, key, values in found.shown() if found else ():
        said = (f"{name} {value or 'has no row'}" for name, value in zip(names, values, strict=True))
        print(printable(f"partition {number}, key {key}: {'; '.join(said)}"))


def _say(cuts: Sequence[Cut], found: Tables | None, others: Sequence[str]) -> None:
    apart = [cut.partition for cut in cuts if not cut.comparable]
    if found is None:
        note("neither group has its own table: only their offsets were compared")
    elif found.differing:
        elsewhere = sum(found.parts[number].differing for number in apart if number in found.parts)
        doubt = f", {elsewhere} of them where the input differs, a possible reason" if elsewhere else ""
        note(f"{count(found.differing, 'row')} differ{'s' if found.differing == 1 else ''}{doubt}")
    else:
        note(f"all {count(found.sums(lambda part: part.rows)[0], 'row')} are the same")
    if found and found.rewritten:
        note(
            f"{count(found.rewritten, 'row')} with other bytes but the same value are not counted as differing"
        )
    if apart:
        note(
            f"in {count(len(apart), 'partition')} ({', '.join(map(str, apart[:20]))}) the groups have not applied the "
            "same input: wait until both have caught up, or use --wait"
        )
    if others:
        note(f"the rows of states were not compared; --state NAME compares one of {', '.join(others)}")
