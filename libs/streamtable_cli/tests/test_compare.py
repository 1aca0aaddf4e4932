"""`streamtable group compare`: two versions of a group, their lag, and their rows at the same input."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from libs.streamtable_cli.tests.bench import NUMBER, Cli, World, until

from streamtable import Avro, Long
from streamtable.base.types import TopicPartition
from streamtable.tables.position import TablePosition

ROWS = {b"a": 1, b"b": 2, b"c": 3}


class Versions:
    """The topics of two groups with two partitions, without running processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.old, self.new = world.topics.name("g"), world.topics.name("g2")
        self.input = world.create("in", partitions=2)
        world.send(self.input, *((b"k", b"v") for _ in range(200)), partition=0)
        world.send(self.input, *((b"k", b"v") for _ in range(10)), partition=1)
        for name in ("g", "g2"):
            world.create(f"{name}-table", partitions=2, config={"cleanup.policy": "compact"})

    def stand(
        self, group: str, rows: Mapping[bytes, bytes | None], offset: int = 200, *, exact: bool = True
    ) -> None:
        """Give partition 0 of a group these rows and offsets; partition 1 is empty and at its end."""
        table = TopicPartition(f"{group}-table", 0)
        self.world.send(table.topic, *rows.items(), partition=0)
        admin = self.world.kafka.admin()
        position = admin.watermarks([table])[table].high
        admin.close()
        metadata = TablePosition(position, exact).encode()
        self.world.commit(group, {TopicPartition(self.input, 0): offset}, metadata)
        self.world.commit(group, {TopicPartition(self.input, 1): 10}, TablePosition(0, exact).encode())


@pytest.fixture
def versions(world: World) -> Versions:
    return Versions(world)


def encoded(rows: Mapping[bytes, int]) -> dict[bytes, bytes]:
    return {key: Long().encode(value) for key, value in rows.items()}


def test_the_same_rows_at_the_same_input_are_the_same(cli: Cli, versions: Versions) -> None:
    versions.stand(versions.old, {b"gone": b"x", **encoded({**ROWS, b"a": 7}), b"d": b"y"})
    versions.stand(versions.old, {b"gone": None, b"d": None, **encoded({b"a": 1})})
    versions.stand(versions.new, encoded(ROWS))
    # Records after the committed positions are ignored.
    versions.world.send(f"{versions.new}-table", (b"a", b"later"), partition=0)
    ran = cli("group", "compare", versions.old, versions.new, "--json").good()
    found = ran.json
    assert found["comparable"]
    assert found["lag"] == {versions.old: 0, versions.new: 0}
    assert found["shared_topics"] == [versions.input]
    assert found["tables"]["rows"] == {versions.old: 3, versions.new: 3}
    assert len(set(found["tables"]["digests"].values())) == 1
    assert [part["rows"] for part in found["partitions"]] == [[3, 3], [0, 0]]
    ran = cli("group", "compare", versions.old, versions.new).good()
    assert "all 3 rows are the same" in ran.err


def test_each_differing_row_is_shown_with_both_values(cli: Cli, versions: Versions) -> None:
    versions.stand(versions.old, encoded(ROWS))
    versions.stand(versions.new, encoded({b"a": 1, b"b": 5, b"d": 4}))
    ran = cli("group", "compare", versions.old, versions.new, "--json")
    assert ran.code == 1
    tables = ran.json["tables"]
    assert tables["differing"] == 3
    assert [
        (
            each["key"]["value"],
            each[versions.old] and each[versions.old]["value"],
            each[versions.new] and each[versions.new]["value"],
            each["comparable"],
        )
        for each in tables["differences"]
    ] == [("b", 2, 5, True), ("c", 3, None, True), ("d", None, 4, True)]
    assert len(set(tables["digests"].values())) == 2
    ran = cli("group", "compare", versions.old, versions.new, "--limit", "1")
    assert ran.code == 1
    assert ran.out.count("partition 0, key") == 1
    assert f'key "b": {versions.old} long 2; {versions.new} long 5' in ran.out
    assert "3 rows differ\n" in ran.err


@pytest.mark.parametrize(("offset", "lag"), [(197, 3), (50, 150)])
def test_a_version_that_is_behind_is_not_comparable(
    offset: int, lag: int, cli: Cli, versions: Versions
) -> None:
    versions.stand(versions.old, encoded(ROWS))
    versions.stand(versions.new, encoded({b"a": 1}), offset)
    ran = cli("group", "compare", versions.old, versions.new, "--json")
    assert ran.code == 1
    assert ran.json["lag"] == {versions.old: 0, versions.new: lag}
    assert [part["comparable"] for part in ran.json["partitions"]] == [False, True]
    ran = cli("group", "compare", versions.old, versions.new)
    assert "2 rows differ, 2 of them where the input differs, a possible reason" in ran.err
    assert "in 1 partition (0) the groups have not applied the same input" in ran.err


def test_groups_behind_at_the_same_offsets_are_comparable_but_not_caught_up(
    cli: Cli, versions: Versions
) -> None:
    versions.stand(versions.old, encoded(ROWS), 150)
    versions.stand(versions.new, encoded(ROWS), 150)
    ran = cli("group", "compare", versions.old, versions.new, "--json")
    assert (ran.code, ran.json["comparable"], ran.json["lag"][versions.old]) == (1, True, 50)
    cli("group", "compare", versions.old, versions.new, "--wait", "1").good()


def test_offsets_that_differ_only_by_a_transaction_marker_are_the_same(cli: Cli, versions: Versions) -> None:
    versions.world.transaction(*((versions.input, b"k%d" % n, b"v") for n in range(20)))
    admin = versions.world.kafka.admin()
    places = [TopicPartition(versions.input, number) for number in range(2)]
    ends = {place: mark.high for place, mark in admin.watermarks(places).items()}
    admin.close()
    for group in (versions.old, versions.new):
        versions.stand(group, encoded(ROWS))
        back = 1 if group == versions.old else 0
        for place, end in ends.items():
            position = TablePosition(3 if place.partition == 0 else 0, exact=True)
            versions.world.commit(group, {place: end - back}, position.encode())
    found = cli("group", "compare", versions.old, versions.new, "--json").good().json
    assert [part["offsets"][0] != part["offsets"][1] for part in found["partitions"]] == [True, True]
    assert found["lag"] == {versions.old: 0, versions.new: 0}


def test_lag_in_its_own_topics_makes_a_version_not_comparable(cli: Cli, versions: Versions) -> None:
    for group in (versions.old, versions.new):
        versions.stand(group, encoded(ROWS))
    loop = versions.world.create("g2-loop", partitions=2)
    versions.world.send(loop, (b"k", b"v"), (b"k", b"v"), partition=0)
    versions.world.commit(versions.new, {TopicPartition(loop, 0): 1}, TablePosition(3, exact=True).encode())
    ran = cli("group", "compare", versions.old, versions.new, "--json")
    assert ran.code == 1
    assert [part["comparable"] for part in ran.json["partitions"]] == [False, True]
    assert ran.json["lag"][versions.new] == 1


def test_a_version_with_a_pending_call_or_a_retried_record_is_not_comparable(
    cli: Cli, versions: Versions
) -> None:
    for group in (versions.old, versions.new):
        versions.stand(group, encoded(ROWS))
    calls = versions.world.create("g2-calls", partitions=2, config={"cleanup.policy": "compact"})
    versions.world.send(
        calls, (b"done", b"row"), (b"k", b"row"), (b"done", None), (b"\0", b"own"), partition=0
    )

    def comparable(position: int) -> list[bool]:
        metadata = TablePosition(3, exact=True, tables={"calls": position}).encode()
        versions.world.commit(versions.new, {TopicPartition(versions.input, 0): 200}, metadata)
        ran = cli("group", "compare", versions.old, versions.new, "--json")
        assert ran.json["states_not_compared"] == []
        assert ran.code == (0 if ran.json["comparable"] else 1)
        return [part["comparable"] for part in ran.json["partitions"]]

    assert comparable(4) == [False, True]
    versions.world.send(calls, (b"k", None), partition=0)
    assert comparable(4) == [False, True], "that it is done was not committed with these offsets"
    assert comparable(5) == [True, True]


@pytest.fixture
def graphs(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    old, new = world.topics.name("g"), world.topics.name("g2")
    (tmp_path / "compared_shop.py").write_text(
        "from streamtable import *\nIN = Stream('in', String(), Long())\n"
        f"OLD = Group({old!r}, Input(IN, aggregate=Count()), Persist(Long()))\n"
        f"NEW = Group({new!r}, Input(IN, aggregate=Count()), Persist(Avro('long')))\n"
        f"OLD_JSON, NEW_JSON = (Group(name, Input(IN, print), Persist(Json())) for name in ({old!r}, {new!r}))\n"
    )
    yield "compared_shop"
    del sys.modules["compared_shop"]


def test_rows_that_decode_to_the_same_value_do_not_differ(cli: Cli, versions: Versions, graphs: str) -> None:
    versions.stand(versions.old, encoded(ROWS))
    versions.stand(versions.new, {key: Avro("long").encode(value) for key, value in ROWS.items()})
    both = ("group", "compare", versions.old, versions.new)
    ran = cli(*both, "--graph", f"{graphs}:OLD", "--graph", f"{graphs}:NEW", "--json").good()
    assert (ran.json["tables"]["differing"], ran.json["tables"]["same_value_in_other_bytes"]) == (0, 3)


def test_a_boolean_and_the_number_that_python_takes_for_it_differ(
    cli: Cli, versions: Versions, graphs: str
) -> None:
    same = {
        b"float": (b"1", b"1.0"),
        b"spaces": (b"[true, 2]", b"[true,2]"),
        b"order": (b'{"a":1,"b":2}', b'{"b":2,"a":1}'),
    }
    others = {
        b"one": (b"1", b"true"),
        b"field": (b'{"paid":0}', b'{"paid":false}'),
        b"item": (b"[[1]]", b"[[true]]"),
    }
    others |= {b"longer": (b"[1]", b"[1,2]"), b"more": (b"{}", b'{"a":1}'), b"kinds": (b"[]", b"{}")}
    for side, group in enumerate((versions.old, versions.new)):
        versions.stand(group, {key: rows[side] for key, rows in (same | others).items()})
    both = ("group", "compare", versions.old, versions.new)
    ran = cli(*both, "--graph", f"{graphs}:OLD_JSON", "--graph", f"{graphs}:NEW_JSON", "--json")
    tables = ran.json["tables"]
    assert (ran.code, tables["same_value_in_other_bytes"]) == (1, len(same))
    assert {each["key"]["value"].encode() for each in tables["differences"]} == others.keys()


def test_a_table_that_was_not_committed_exactly_once_is_read_to_its_end(cli: Cli, versions: Versions) -> None:
    for group in (versions.old, versions.new):
        versions.stand(group, encoded(ROWS), exact=False)
    versions.world.send(f"{versions.new}-table", (b"a", b"later"), partition=0)
    assert cli("group", "compare", versions.old, versions.new, "--json").json["tables"]["differing"] == 1


def test_a_truncated_table_is_reported(cli: Cli, versions: Versions) -> None:
    for group in (versions.old, versions.new):
        versions.stand(group, encoded(ROWS))
    place = TopicPartition(versions.input, 0)
    versions.world.commit(versions.new, {place: 200}, TablePosition(99, exact=True).encode())
    ran = cli("group", "compare", versions.old, versions.new)
    assert ran.code == 1
    assert "position 99, but the topic ends at 3" in ran.err


def test_groups_that_are_not_two_versions_are_refused(cli: Cli, versions: Versions) -> None:
    world = versions.world
    versions.stand(versions.old, encoded(ROWS))
    ran = cli("group", "compare", versions.old, versions.new)
    assert (ran.code, ran.out) == (1, "")
    assert "has no committed offsets" in ran.err
    other = world.create("other", partitions=1)
    world.commit(versions.new, {TopicPartition(other, 0): 0})
    ran = cli("group", "compare", versions.old, versions.new)
    assert ran.code == 2
    assert "no topic in common" in ran.err
    assert "two groups" in cli("group", "compare", versions.old, versions.old).err


def test_groups_without_tables_are_compared_by_their_offsets(cli: Cli, world: World) -> None:
    topic = world.create("in", partitions=1)
    world.send(topic, (b"k", b"v"))
    groups = [world.topics.name(name) for name in ("one", "two")]
    for group, offset in zip(groups, (1, 0), strict=True):
        world.commit(group, {TopicPartition(topic, 0): offset})
    ran = cli("group", "compare", *groups, "--json")
    assert (ran.code, ran.json["tables"], ran.json["lag"]) == (1, None, {groups[0]: 0, groups[1]: 1})
    world.commit(groups[1], {TopicPartition(topic, 0): 1})
    assert "neither group has its own table" in cli("group", "compare", *groups).good().err


def test_states_are_compared_by_name_and_those_that_are_not_are_named(cli: Cli, world: World) -> None:
    topic = world.create("in", partitions=1)
    world.send(topic, (b"k", b"v"))
    groups = [world.topics.name(name) for name in ("one", "two")]
    for name, group, row in zip(("one", "two"), groups, (1, 2), strict=True):
        for state in ("stock", "prices"):
            table = world.create(f"{name}-{state}", partitions=1, config={"cleanup.policy": "compact"})
            rows = {b"a": row if state == "stock" else 5, b"later": row}
            world.send(table, *encoded(rows).items(), partition=0)
        metadata = TablePosition(0, exact=True, tables={"stock": 1, "prices": 1, "ids": 0}).encode()
        world.commit(group, {TopicPartition(topic, 0): 1}, metadata)
    own = cli("group", "compare", *groups).good()
    assert "--state NAME compares one of prices, stock" in " ".join(own.err.split())
    assert cli("group", "compare", *groups, "--json").json["states_not_compared"] == ["prices", "stock"]
    assert "all 1 row are the same" in cli("group", "compare", *groups, "--state", "prices").good().err
    differs = cli("group", "compare", *groups, "--state", "stock", "--json")
    assert (differs.code, differs.json["tables"]["rows"]) == (1, dict.fromkeys(groups, 1))
    assert differs.json["tables"]["differing"] == 1
    missing = cli("group", "compare", *groups, "--state", "hours")
    assert missing.code == 1
    assert "there is neither" in missing.err


def test_running_versions_are_compared_at_a_common_offset(cli: Cli, world: World) -> None:
    old, new = world.group(), world.group(name="g2")
    with world.running(old):
        world.send(world.topics.name("in"), *((b"k%d" % (n % 9), NUMBER.encode(n)) for n in range(60)))
        until(lambda: len(cli("table", "scan", old.table.name, "--json").lines) == 9, "all is counted")
        with world.running(new):
            until(lambda: cli("group", "describe", new.name).code == 0, "it has joined")
            found: Any = cli("group", "compare", old.name, new.name, "--wait", "60", "--json").good().json
    assert found["comparable"]
    assert found["tables"]["rows"] == {old.name: 9, new.name: 9}
    assert cli("group", "compare", old.name, new.name, "--json").good().json["tables"]["differing"] == 0


def test_an_unreachable_broker_is_reported_quickly(nowhere: Cli) -> None:
    ran = nowhere("group", "compare", "a", "b")
    assert ran.code == 1
    assert "no answer from Kafka at 127.0.0.1:9" in ran.err
