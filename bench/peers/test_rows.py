from pathlib import Path

import pytest
from bench import plan
from bench.measure import RowFailed
from bench.orders import order
from bench.peers import captures, flows, sinks, typed
from bench.peers.rows import HERE, SCHEMA, Peer, build, missing, peers, steps
from bench.programs.processor import Order

from streamtable import Typed


def peer(*command: str, needs: tuple[str, ...] = ()) -> Peer:
    return Peer("name", needs, [(Path.cwd(), command)], [], "{group}-table", int, 1.0)


def test_a_peer_lacks_the_tools_that_are_not_on_this_machine() -> None:
    assert missing(peer(needs=("sh", "no-such-compiler"))) == ["no-such-compiler"]


def test_a_build_that_fails_says_what_the_tool_said() -> None:
    with pytest.raises(RowFailed, match="sh failed: no such module"):
        build(peer("sh", "-c", "echo no such module; exit 1"))


def test_every_peer_has_its_program_and_reads_the_schema_of_the_contracts() -> None:
    assert SCHEMA.exists()
    for each in peers():
        assert (HERE / each.name).is_dir(), each.name


def test_peers_come_after_the_rows_that_they_are_compared_with() -> None:
    rows = [row for step in steps(peers()) for row in step.rows]
    assert rows[:3] == ["ceiling", "plain_loop", "count_exactly_once_1s"]
    assert rows[3:] == [f"peer_{each.name}" for each in peers()]


def test_each_flow_is_measured_once_and_followed_by_the_same_of_its_peers() -> None:
    rows = [row for step in [*steps(peers()), *flows.steps(peers())] for row in step.rows]
    assert len(rows) == len(set(rows))
    for each in flows.BESIDE:
        assert rows.index(each.row) < rows.index(each.name)
    assert {each.name for each in flows.BESIDE} < set(rows)
    assert {each.row for each in flows.BESIDE} <= {row for step in plan.steps() for row in step.rows}


def test_a_flow_has_no_peer_that_cannot_be_built() -> None:
    rows = [row for step in flows.steps([]) for row in step.rows]
    assert [row for row in rows if row.startswith("peer_")] == []


def test_the_captured_table_is_followed_by_the_same_of_kafka_streams_where_that_can_be_built() -> None:
    assert [step.rows for step in captures.steps(peers())][1:] == [(captures.ROW,)]
    assert captures.steps([])[-1].rows[-1] == captures.BASELINE


def test_times_are_no_counts_of_sessions() -> None:
    assert [flows.quix_session(value) for value in (b"", b"3", b"1795474667759")] == [0, 3, 0]


def test_a_peers_sink_comes_after_ours_and_only_where_it_can_be_built() -> None:
    rows = [row for step in sinks.steps(peers()) for row in step.rows]
    assert rows == [
        "sink_from_kafka",
        "sink_from_kafka_doubles",
        "peer_quix_streams_sink",
        "peer_quix_streams_sink_doubles",
    ]
    assert set(sinks.BASELINES.items()) == set(zip(rows[2:], rows[:2], strict=True))
    assert sinks.steps([]) == []
    assert (HERE / "quix_streams" / "sink.py").exists()


def test_typed_orders_are_counted_by_us_and_then_by_two_peers() -> None:
    rows = [row for step in typed.steps(peers()) for row in step.rows]
    assert rows == ["typed_orders", "peer_quix_streams_typed_orders", "peer_faust_typed_orders"]
    assert typed.baselines(peers()) == dict.fromkeys(rows[1:], "typed_orders")
    assert typed.steps([]) == []
    for each in typed.beside(peers()):
        assert Path(each.peer.command[-1]).exists()


def test_an_order_is_what_the_types_of_the_programs_say() -> None:
    assert Typed(Order, strict=True).decode(order(7)).items[2].count == 2
