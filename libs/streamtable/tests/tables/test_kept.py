"""The record of the tables that a group has kept: what it remembers, and that it fits."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from streamtable.base.event_time import InputTime
from streamtable.errors import StateLost
from streamtable.graph.companion import TIMER_TABLES
from streamtable.graph.group import NAMED_TABLE_CHARACTERS_MAX, NAMED_TABLES_MAX
from streamtable.tables.kept import (
    IDS,
    OWN,
    InputRecord,
    Keeps,
    KeptRecord,
    KeptTables,
    TopicState,
    bounded_meaning,
    digest,
    inner_topic,
    tables_left,
    unsettled,
)
from streamtable.tables.position import TablePosition
from streamtable.tables.seen import TOPICS_MAX, SeenInputs

Make = Callable[[str], Keeps]
INPUTS = frozenset({"a", "b"})
RETRY = frozenset({"retry"})  # which every version reads


class Life:
    """One partition of a group, whose versions start one after the other."""

    def __init__(self) -> None:
        self.offsets = dict.fromkeys(INPUTS | RETRY, 0)
        self.records: dict[str, KeptRecord | None] = dict.fromkeys(INPUTS | RETRY)
        self.committed: set[str] = set()
        self.topics: dict[str, TopicState] = {}

    def start(
        self, *tables: Keeps, inputs: frozenset[str] = INPUTS, handles: int = 1, room: int = 2_000
    ) -> None:
        """Start a version that keeps these tables, and handle records of each input. Raises as it does."""
        inputs |= RETRY
        states = {
            each.topic: self.topics.get(each.topic, TopicState(f"id of {each.topic}")) for each in tables
        }
        program = KeptTables("g", tables, room=room)
        now = program.continued(0, self._inputs(inputs), states)
        offsets = {name: self.offsets[name] + (handles if name in INPUTS else 0) for name in inputs}
        lacks = tables_left(now.values()) if handles else set()
        for name in inputs:
            metadata = TablePosition(0, exact=True, record=now[name].with_lacks(lacks)).encode()
            assert len(metadata) < 4096
            read = TablePosition.decode(metadata)
            assert read is not None
            assert read.record == now[name].with_lacks(lacks)
            self.records[name] = read.record
        self.offsets |= offsets
        self.committed |= inputs
        for each in tables:
            self.topics[each.topic] = replace(states[each.topic], end=states[each.topic].end + handles)
        # The same version has nothing to commit when it starts again.
        there = self._inputs(inputs)
        again = program.continued(0, there, {each.topic: self.topics[each.topic] for each in tables})
        assert not unsettled((there[name], again[name]) for name in inputs)

    def _inputs(self, names: frozenset[str]) -> dict[str, InputRecord]:
        return {
            name: InputRecord(self.offsets[name], name in self.committed, self.records[name])
            for name in names
        }


def state(name: str, fed_by: frozenset[str] = INPUTS) -> Keeps:
    return Keeps(name, f"g-{name}", fed_by | RETRY)


def inner(name: str, fed_by: frozenset[str] = INPUTS) -> Keeps:
    return Keeps(inner_topic(f"g-{name}"), f"g-{name}", fed_by | RETRY, is_table=False)


@pytest.mark.parametrize("kind", [state, inner])
@pytest.mark.parametrize("between", [INPUTS, frozenset("a"), frozenset("b")], ids=["both", "a", "b"])
def test_a_table_that_comes_back_is_refused_whichever_input_was_handled_without_it(
    kind: Make, between: frozenset[str]
) -> None:
    life = Life()
    life.start(kind("t"))
    life.start(inputs=between)
    with pytest.raises(StateLost, match="gone on without it"):
        life.start(kind("t"))


@pytest.mark.parametrize("name", TIMER_TABLES.values())
def test_a_new_name_is_not_the_advice_for_a_table_that_all_timers_share(name: str) -> None:
    life = Life()
    life.start(state(name))
    life.start()
    with pytest.raises(
        StateLost,
        match=r"handled .*Either delete the topic and create it again, to begin empty; or build all",
    ):
        life.start(state(name))


@pytest.mark.parametrize("kind", [state, inner])
def test_an_input_that_comes_when_the_table_is_away_counts_too(kind: Make) -> None:
    life = Life()
    life.start(kind("t"), inputs=frozenset("a"))
    life.start(inputs=INPUTS, handles=0)
    life.start(inputs=frozenset("b"))
    with pytest.raises(StateLost, match="'b' up to offset 1"):
        life.start(kind("t"))


@pytest.mark.parametrize("kind", [state, inner])
def test_a_table_is_refused_for_an_input_that_is_not_read_any_more_when_the_table_comes_back(
    kind: Make,
) -> None:
    life = Life()
    life.start(kind("t"))
    life.start(inputs=INPUTS, handles=0)
    life.start(inputs=frozenset("b"))
    life.start(inputs=frozenset("b"))
    with pytest.raises(StateLost, match="records of another input"):
        life.start(kind("t"), inputs=frozenset("a"))


def test_a_version_without_the_table_that_has_handled_only_other_inputs_is_enough() -> None:
    """The table may follow another one, which they have changed."""
    life = Life()
    life.start(state("t"), inputs=frozenset("a"))
    life.start(inputs=frozenset("b"), handles=0)
    life.start(state("t"), inputs=frozenset("a"))
    life.start(inputs=frozenset("b"))
    with pytest.raises(StateLost, match="records of another input"):
        life.start(state("t"), inputs=frozenset("a"))


def test_the_ids_of_an_input_that_once_was_taken_from_are_not_missed_by_another() -> None:
    life = Life()
    life.start(Keeps(IDS, "g-ids", frozenset("a")))
    life.start()
    life.start(Keeps(IDS, "g-ids", frozenset("b")))
    with pytest.raises(StateLost, match="'a' up to offset 3"):
        life.start(Keeps(IDS, "g-ids", frozenset("ab")))


def test_an_input_that_no_longer_feeds_a_table_and_then_does_again_is_a_gap() -> None:
    life = Life()
    life.start(state("t"))
    life.start(state("t", frozenset("a")))
    with pytest.raises(StateLost, match="'b' up to offset 2"):
        life.start(state("t"))


@pytest.mark.parametrize(
    ("kind", "number"), [(state, 13), (state, 40), (state, 200), (inner, 13), (inner, 25)]
)
def test_of_any_number_of_tables_that_were_left_none_comes_back_unnoticed(kind: Make, number: int) -> None:
    life = Life()
    names = [f"{each:0>{NAMED_TABLE_CHARACTERS_MAX}}" for each in range(number)]
    for name in names:
        life.start(kind(name))
    life.start()
    for name in names:
        with pytest.raises(StateLost, match="gone on without it"):
            life.start(kind(name))


def test_after_more_inner_topics_than_are_recorded_a_new_one_is_refused_as_it_may_be_one_of_them() -> None:
    life = Life()
    for number in range(25):
        life.start(inner(f"i{number}"))
    with pytest.raises(StateLost, match="has left more of them than are recorded"):  # noqa: PT012 - one of these
        for number in range(25, 50):
            life.start(inner(f"i{number}"))


def test_a_new_table_begins_however_many_were_left() -> None:
    life = Life()
    for number in range(100):
        life.start(state(f"t{number}"), inner(f"i{number}")) if number < 10 else life.start(
            state(f"t{number}")
        )
    life.start(state("new"))
    life.start(state("new"))


def test_the_metadata_of_an_offset_fit_whatever_is_recorded() -> None:
    names = [f"{number:0>{NAMED_TABLE_CHARACTERS_MAX}}" for number in range(NAMED_TABLES_MAX)]
    life = Life()
    for number in range(100):
        life.start(*(state(f"{number + 1:0>3}{name[3:]}") for name in names))
    assert any(record is not None and record.more for record in life.records.values())
    life.records = {
        name: record and replace(record, more=False) for name, record in life.records.items()
    }  # else inner topics are refused
    life.start(*map(state, names), *(inner(f"i{number}") for number in range(20)))
    record = life.records["a"]
    assert record is not None
    record = replace(
        record,
        kept={**record.kept, OWN: digest("id")},
        meanings={OWN: bounded_meaning("x" * 999), "ids": bounded_meaning("y" * 999)},
        version="v" * 40,
    )
    ids = SeenInputs(2**62, {digest(f"t{number}"): digest(f"id{number}") for number in range(TOPICS_MAX)})
    for producers in (0, 5, 100, 1000):
        times = InputTime(2**45, 2**45, tuple(2**45 + number * 999_983 for number in range(producers)))
        position = TablePosition(2**62, True, dict.fromkeys(names, 2**62), ids, times, record)
        assert len(position.encode()) < 4096
        read = TablePosition.decode(position.encode())
        assert read is not None
        assert read.record == record


def test_inner_topics_that_were_left_are_recorded_as_far_as_the_group_has_room() -> None:
    life = Life()
    life.start(*(inner(f"i{number}") for number in range(10)))
    life.start(room=100)
    record = life.records["a"]
    assert record is not None
    assert (len(record.left), record.more) == (2, True)
    with pytest.raises(StateLost, match="it has left more of them than are recorded"):
        life.start(inner("new"))


def test_a_table_with_rows_is_refused_when_a_reset_of_expired_offsets_has_forgotten_it() -> None:
    life = Life()
    life.start(state("t"))
    life.offsets = dict.fromkeys(life.offsets, 0)
    life.records = dict.fromkeys(life.records, KeptRecord())
    with pytest.raises(
        StateLost, match=r"holds 1 changes, and no offset of the group names it.*\(g-t\[0\]\)"
    ):
        life.start(state("t"))
    life.topics["g-t"] = TopicState("another id of g-t")
    life.start(state("t"))


def test_after_a_reset_a_follower_begins_with_the_changes_that_are_still_there() -> None:
    life = Life()
    counts, sums = (Keeps(name, f"g-{name}", INPUTS | RETRY, frozenset("a")) for name in ("counts", "sums"))
    life.start(counts)
    with pytest.raises(StateLost, match="'a', which has rows already"):
        life.start(counts, sums)
    life.topics = {}
    life.records = dict.fromkeys(
        INPUTS | RETRY, KeptRecord()
    )  # as the command writes it; older changes have been purged
    life.start(counts, sums)


def test_an_input_that_does_not_feed_a_table_is_no_gap_of_it_when_the_table_is_away_for_a_moment() -> None:
    life = Life()
    life.start(state("t", frozenset("a")))
    life.start(handles=0)
    life.start(state("t", frozenset("a")))
