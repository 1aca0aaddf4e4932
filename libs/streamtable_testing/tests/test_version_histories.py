"""Random histories of versions of a program: each start is refused, or all tables are right afterwards.

The versions keep other tables, read other inputs and have other steps; what comes and goes is drawn. The oracle follows for
each partition which records every table has seen, and which were handled without it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, NamedTuple

import pytest

from streamtable import Context, Group, Input, Json, Long, Once, Persist, State, Stream, String, Table
from streamtable.errors import StateLost
from streamtable.flow import Flow
from streamtable.tables.kept import IDS, KeptTables, _Start
from streamtable_testing import Tester

A, B = Stream[str, Any]("a", String(), Json()), Stream[str, Any]("b", String(), Json())
OUT = Stream[str, Any]("out", String(), Json())
STREAMS = {"a": A, "b": B}
SUMS = State("sums", key=String(), value=Long())
Parts = frozenset[str]
"""The parts of a version: inputs, tables and steps, by name."""

_HISTORIES = 30
_KEYS = "klmnop"


class Record(NamedTuple):
    """A record of an input: its key, the value that it is grouped by, and the id that it counts once by."""

    key: str
    value: str
    id: int


# ---- programs ---------------------------------------------------------------------------------------------------------


def handlers(parts: Parts) -> Sequence[Group[Any, Any]]:
    """A group of handlers that count the records of a key, each of the input a once by its id."""

    def count(ctx: Context[str, int], _: Any) -> None:
        if "own" in parts:
            ctx.set((ctx.value or 0) + 1)
        if "sums" in parts:
            table = ctx.table(SUMS)
            table.put(ctx.key, (table.get(ctx.key) or 0) + 1)

    def edge(name: str) -> Input[Any, Any, Any]:
        once = Once[Any](by="id", within=timedelta(days=1)) if name == "a" and "ids" in parts else None
        return Input(STREAMS[name], count, once=once)

    kept: list[Any] = [*([Persist(Long())] if "own" in parts else []), *([SUMS] if "sums" in parts else [])]
    return [Group("g", *(edge(name) for name in STREAMS if name in parts), *kept)]


def steps(parts: Parts) -> Sequence[Group[Any, Any]]:
    """A flow that counts where it reads, behind a repartition, and behind a table of the latest values."""
    flow = Flow("f")
    read = [flow.stream(STREAMS[name]) for name in STREAMS if name in parts]
    for each in read:
        each.filter(lambda _: False).to(OUT)
    first, *others = read[:1] if "apart" in parts else read
    merged = first.merge(*others)
    if "n" in parts:
        merged.group_by_key().count("n")
    if "by" in parts:
        merged.group_by("by", lambda each: each["v"], key=String(), value=Json()).count("m")
    if "rows" in parts:
        rows = merged.to_table("rows", value=Json())
        if "groups" in parts:
            rows.group_by("groups", lambda each: each["v"], key=String()).count("k")
    return flow.groups


# ---- the oracle -------------------------------------------------------------------------------------------------------

FED: dict[str, Callable[[Parts], bool]] = {
    "own": lambda parts: "own" in parts,
    "sums": lambda parts: "sums" in parts,
    "ids": lambda parts: {"ids", "a"} <= parts,
    "n": lambda parts: "n" in parts,
    "by": lambda parts: "by" in parts,
    "rows": lambda parts: "rows" in parts,
    "groups": lambda parts: {"rows", "groups"} <= parts,
}
"""Whether a version keeps a table, or an inner topic."""


class Oracle:
    """The records of each partition of the inputs that each table has seen, and those that it lacks."""

    def __init__(self) -> None:
        self.seen: defaultdict[str, list[Record]] = defaultdict(list)
        self._pending: defaultdict[tuple[str, int], list[Record]] = defaultdict(list)
        self._handled: set[tuple[str, int]] = set()  # partitions of inputs with handled records
        self._lacks: defaultdict[str, set[tuple[str, int]]] = defaultdict(set)
        self._late_for: dict[
            str, set[tuple[str, int]]
        ] = {}  # by table: it began beside these, and not with them
        self._ids: set[tuple[int, int]] = set()
        self._away: set[str] = set()  # tables without which records were handled

    def must_refuse(self, parts: Parts) -> bool:
        """Whether a table of this version lacks what another version has handled."""
        if self._away & set(_kept(parts)):
            return True
        gaps = any(self._lacks[table] & places(_inputs(table, parts)) for table in _kept(parts))
        return gaps or (
            "groups" in _kept(parts) and "groups" not in self._late_for and bool(self.seen["rows"])
        )

    def may_refuse(self, parts: Parts) -> bool:
        """Whether a table is to get an input that was handled before the table began, by a version that did not feed it."""
        known = [table for table in _kept(parts) if table in self._late_for]
        return any(self._late_for[table] & places(_inputs(table, parts)) for table in known)

    def start(self, parts: Parts) -> None:
        """A version was started."""
        for table in _kept(parts):
            self._late_for.setdefault(table, self._handled - places(_inputs(table, parts)))
        self._handle(parts)

    def emit(self, name: str, partition: int, record: Record, parts: Parts) -> None:
        self._pending[name, partition].append(record)
        self._handle(parts)

    def _handle(self, parts: Parts) -> None:
        for name, partition in list(self._pending):
            if name in parts:
                for record in self._pending.pop((name, partition)):
                    self._take(name, partition, record, parts)

    def _take(self, name: str, partition: int, record: Record, parts: Parts) -> None:
        self._handled.add((name, partition))
        fed = [table for table in _kept(parts) if name in _inputs(table, parts)]
        for table in self._late_for.keys() - fed:
            self._lacks[table].add((name, partition))
            if table not in _kept(parts) and table != "ids":  # ids are of the input that has them
                self._away.add(table)
        repeated = "ids" in fed and (partition, record.id) in self._ids
        if "ids" in fed:
            self._ids.add((partition, record.id))
        for table in fed if not repeated else ():
            self.seen[table].append(record)


def places(names: Sequence[str]) -> set[tuple[str, int]]:
    return {(name, partition) for name in names for partition in range(2)}


def _kept(parts: Parts) -> list[str]:
    return [table for table, keeps in FED.items() if keeps(parts)]


def _inputs(table: str, parts: Parts) -> list[str]:
    """Return the inputs that feed a table of a version."""
    read = [name for name in STREAMS if name in parts]
    return ["a"] if table == "ids" else read[:1] if "apart" in parts else read


# ---- histories --------------------------------------------------------------------------------------------------------


class History:
    """A program whose versions are drawn, and what it is compared with."""

    def __init__(self, seed: int, tester: Tester) -> None:
        self.draw = Random(seed)
        self.tester = tester
        self.is_flow = self.draw.random() < 0.6
        self.make = steps if self.is_flow else handlers
        self.oracle = Oracle()
        self.ran: dict[str, Group[Any, Any]] = {}
        self.log: list[str] = []

    def live(self) -> int:
        """Run some versions. Returns how many were refused."""
        self.tester.create(A, B, OUT)
        before, refused = self._parts(), 0
        for _ in range(self.draw.randint(2, 6)):
            if not self._start(before):
                refused += 1
                before = self._parts()
                continue
            for _ in range(self.draw.choice([0, 1, 3, 8])):
                self._emit(before)
            self._compare(before)
            self._end(before)
            before = self._next(before)
        return refused

    def _parts(self) -> Parts:
        tables = ["n", "by", "rows", "groups", "apart"] if self.is_flow else ["own", "sums", "ids"]
        read = self.draw.choice([["a"], ["b"], ["a", "b"], ["a", "b"]])
        return frozenset([*read, *(each for each in tables if self.draw.random() < 0.6)])

    def _next(self, parts: Parts) -> Parts:
        """Return another version: most often the earlier version comes back."""
        if self.draw.random() < 0.3:
            return self._parts()
        tables = ["n", "by", "rows", "groups"] if self.is_flow else ["own", "sums", "ids"]
        changed = parts ^ {self.draw.choice([*tables, "a", "b"])}
        return changed if changed & set(STREAMS) else parts

    def _start(self, parts: Parts) -> bool:
        disk = self.draw.random() < 0.5
        self.log.append(f"{sorted(parts)}{'' if disk else ' on an empty disk'}")
        try:
            for group in self.make(parts):
                if group.name in self.ran:
                    self.tester.start(group, disk=disk)
                else:
                    self.tester.run(group)
                self.ran[group.name] = group
        except StateLost as error:
            self.log.append(f"refused: {error}")
            assert self.oracle.must_refuse(parts) or self.oracle.may_refuse(parts), self.log
            self._end(parts)
            return False
        assert not self.oracle.must_refuse(parts), self.log
        self.oracle.start(parts)
        self._compare(parts)
        return True

    def _end(self, parts: Parts) -> None:
        for group in self.make(parts):
            if group.name in self.ran:
                if self.draw.random() < 0.3:
                    self.tester.crash(group)
                else:
                    self.tester.stop(group)

    def _emit(self, parts: Parts) -> None:
        name = self.draw.choice(list(STREAMS))
        key = f"{name}{self.draw.choice(_KEYS)}"
        record = Record(key, self.draw.choice("xyz"), self.draw.randrange(12))
        ack = self.tester.emit(STREAMS[name], key, {"v": record.value, "id": record.id})
        self.log.append(f"{record} to {name}[{ack.partition}]")
        self.oracle.emit(name, ack.partition, record, parts)

    def _compare(self, parts: Parts) -> None:
        seen = self.oracle.seen
        rows = {record.key: record.value for record in seen["rows"]}
        right = {
            "own": ("g-table", Counter(each.key for each in seen["own"])),
            "sums": ("g-sums", Counter(each.key for each in seen["sums"])),
            "n": ("f-n", Counter(each.key for each in seen["n"])),
            "by": ("f-by-m", Counter(each.value for each in seen["by"])),
            "groups": ("f-groups-k", Counter(rows.values())),
        }
        for table in right.keys() & set(_kept(parts)):
            topic, counts = right[table]
            found = self.tester.table(Table(topic, String(), Long()))
            assert {key: n for key, n in found.items() if n} == counts, [topic, *self.log]


@pytest.mark.parametrize(
    "block", [0, *(pytest.param(block, marks=pytest.mark.faults_long) for block in range(1, 34))]
)
def test_after_any_history_of_versions_a_start_is_refused_or_all_tables_are_right(block: int) -> None:
    refused = live_all(range(_HISTORIES * block, _HISTORIES * (block + 1)))
    assert refused, "the histories have no gap that could be noticed"


def live_all(seeds: Iterable[int]) -> int:
    """Live these histories. Returns how many starts were refused."""
    refused = 0
    for seed in seeds:
        with Tester(partitions=2) as tester:
            refused += History(seed, tester).live()
    return refused


# ---- planted bugs -----------------------------------------------------------------------------------------------------


def only_the_first_input_looked_at(patch: pytest.MonkeyPatch) -> None:
    continued = KeptTables.continued

    def of_one(self: KeptTables, partition: int, inputs: Any, topics: Any) -> Any:
        first = next(iter(inputs))
        once_more = continued(self, partition, {first: inputs[first]}, topics)
        return dict.fromkeys(inputs, once_more[first])

    patch.setattr(KeptTables, "continued", of_one)


def gap_forgotten_at_the_next_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Start, "_left", lambda _: {})


def inner_topics_not_recorded(patch: pytest.MonkeyPatch) -> None:
    continued = KeptTables.continued

    def of_tables(self: KeptTables, *more: Any) -> Any:
        return continued(replace(self, tables=[each for each in self.tables if each.is_table]), *more)

    patch.setattr(KeptTables, "continued", of_tables)


def ids_not_recorded(patch: pytest.MonkeyPatch) -> None:
    continued = KeptTables.continued

    def without_ids(self: KeptTables, *more: Any) -> Any:
        return continued(replace(self, tables=[each for each in self.tables if each.name != IDS]), *more)

    patch.setattr(KeptTables, "continued", without_ids)


def followers_begin_from_now_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(_Start, "refuse_late_followers", lambda _: None)


def all_inputs_feed_all_tables(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("streamtable.flow.plan.compiler.fed_by_sources", lambda _: ())


PLANTED = [
    only_the_first_input_looked_at,
    gap_forgotten_at_the_next_start,
    inner_topics_not_recorded,
    ids_not_recorded,
    followers_begin_from_now_on,
    all_inputs_feed_all_tables,
]


@pytest.mark.parametrize("plant", PLANTED)
def test_a_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        live_all(range(200))
