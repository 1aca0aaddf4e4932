import json
from typing import Any

from services.console.tests.world import status_with

from console.fleet import Topic, graph_of, instances_of
from contracts.records import ProcessStatus
from streamtable_admin.process_status import FORGOTTEN_MS, SILENT_MS

GRAPH = json.dumps(
    {
        "group": "count",
        "reads": [
            {"topic": "clicks", "how": "stream", "codecs": "String → Avro UserClick"},
            {"topic": "names-table", "how": "lookup", "codecs": ""},
            {"topic": "count-retry", "how": "retry", "codecs": ""},
        ],
        "writes": [
            {"topic": "count-table", "how": "table", "codecs": "String → Avro long"},
            {"topic": "count-dead-letters", "how": "dead letters", "codecs": ""},
        ],
    }
)
NOW = 1_012_000


def worker(instance: str, **changes: Any) -> ProcessStatus:
    flows = [
        {"topic": "clicks", "direction": "in", "records": 9, "rate": 4.5},
        {"topic": "count-table", "direction": "out", "records": 9, "rate": 4.0},
    ]
    return status_with(
        **{
            "role": "processor",
            "group": "count",
            "instance": instance,
            "graph": GRAPH,
            "flows": flows,
            **changes,
        }
    )


def pictured(
    statuses: dict[str, ProcessStatus], topics: dict[str, Topic] | None = None, now: int = NOW
) -> tuple[dict[str, dict[str, Any]], dict[tuple[str, str], dict[str, Any]]]:
    graph = graph_of(statuses, instances_of(statuses, now), topics or {})
    nodes = {node["id"]: node for node in graph["nodes"]}
    return nodes, {(edge["source"], edge["target"]): edge for edge in graph["edges"]}


def test_a_process_that_tells_nothing_for_long_is_silent() -> None:
    statuses = {"a": status_with()}
    states = [
        instances_of(statuses, STATUS_AT + after)[0]["state"]
        for STATUS_AT, after in [(1_010_000, 0), (1_010_000, SILENT_MS + 1)]
    ]
    assert states == ["ready", "silent"]


def test_a_process_that_has_failed_stays_failed() -> None:
    statuses = {"a": status_with(state="failed", error="Fenced")}
    (found,) = instances_of(statuses, NOW + 10 * SILENT_MS)
    assert (found["state"], found["error"]) == ("failed", "Fenced")


def test_a_process_is_forgotten_after_a_day() -> None:
    assert instances_of({"a": status_with()}, NOW + FORGOTTEN_MS) == []


def test_the_lag_of_a_process_is_that_of_its_inputs_as_far_as_it_is_known() -> None:
    inputs = [
        {"topic": "clicks", "partition": number, "lag": lag, "records": 0}
        for number, lag in enumerate([5, -1, 7])
    ]
    (found,) = instances_of({"a": worker("one", inputs=inputs)}, NOW)
    assert found["lag"] == 12


def test_rates_on_arrows_are_those_of_all_processes_of_the_group() -> None:
    nodes, edges = pictured({"a": worker("one"), "b": worker("two")})
    assert edges["topic clicks", "group count"]["rate"] == 9.0
    assert edges["group count", "topic count-table"]["rate"] == 8.0
    assert nodes["group count"]["instances"] == 2
    assert nodes["topic count-table"]["kind"] == nodes["topic names-table"]["kind"] == "table"
    assert nodes["topic clicks"]["detail"] == "String → Avro UserClick"


def test_it_is_unknown_how_often_a_table_is_looked_up() -> None:
    _, edges = pictured({"a": worker("one")})
    assert edges["topic names-table", "group count"]["rate"] is None


def test_dead_letters_and_retries_are_left_out() -> None:
    nodes, _ = pictured({"a": worker("one")})
    assert set(nodes) == {"group count", "topic clicks", "topic names-table", "topic count-table"}


def test_a_silent_process_adds_nothing_to_the_rates() -> None:
    _, edges = pictured({"a": worker("one"), "b": worker("two", at=NOW - SILENT_MS - 1)})
    assert edges["topic clicks", "group count"]["rate"] == 4.5


def test_without_live_processes_rates_are_unknown() -> None:
    nodes, edges = pictured({"a": worker("one", at=NOW - SILENT_MS - 1)})
    assert edges["topic clicks", "group count"]["rate"] is None
    assert nodes["group count"]["states"] == {"silent": 1}


def test_what_one_service_alone_sends_is_what_the_topic_grows_by() -> None:
    topics = {"clicks": Topic(12, 100, 3.5)}
    one = {"a": status_with(role="emitter", emits=["clicks"])}
    assert pictured(one, topics)[1]["service shop emitter", "topic clicks"]["rate"] == 3.5
    two = one | {"b": status_with(role="other", emits=["clicks"])}
    assert pictured(two, topics)[1]["service shop emitter", "topic clicks"]["rate"] is None


def test_a_service_stands_behind_the_tables_that_it_shows() -> None:
    copies = [{"table": "count-table", "partitions": 12, "age_seconds": 0.5}]
    topics = {"count-table": Topic(12, 40, 1.0)}
    nodes, edges = pictured({"a": status_with(copies=copies)}, topics)
    assert ("topic count-table", "service shop query") in edges
    assert nodes["topic count-table"]["records"] == 40


def test_a_group_answers_the_services_that_ask_its_processes() -> None:
    flows = [{"topic": "count-table", "direction": "query", "records": 9, "rate": 1.5}]
    asking = {name: status_with(instance=name, flows=flows) for name in ("b", "c")}
    silent = {"d": status_with(instance="d", flows=flows, at=NOW - SILENT_MS - 1)}
    nodes, edges = pictured({"a": worker("one"), **asking, **silent})
    arrow = edges["group count", "service shop query"]
    assert (arrow["how"], arrow["rate"]) == ("query", 3.0)
    assert nodes["service shop query"]["instances"] == 3


def test_a_graph_that_is_none_is_left_out() -> None:
    for text in (
        "{",
        "[]",
        '{"reads": [], "writes": [{"topic": 5}]}',
        "5",
        '{"group": "g"}',
        '{"reads": [], "writes": []}',
        "[" * 100_000,
    ):
        nodes, _ = pictured({"a": worker("one", graph=text)})
        assert nodes == {}


def test_the_console_itself_is_an_instance_but_no_part_of_the_graph() -> None:
    copies = [{"table": "count-table", "partitions": 12, "age_seconds": 0.5}]
    statuses = {"a": status_with(service="console", role="console", copies=copies)}
    assert pictured(statuses, {"count-table": Topic(12, 40, 1.0)})[0] == {}
    assert len(instances_of(statuses, NOW)) == 1


def test_a_call_is_a_node_behind_its_group_with_the_numbers_of_all_processes() -> None:
    one = {"call": "place", "pending": 3, "oldest_seconds": 9.0, "answered": 70, "rate": 1.5, "failed": 2}
    nothing = {**one, "pending": 0, "oldest_seconds": 0.0, "rate": 0.5}
    dead = worker("three", calls=[one], at=NOW - 60_000)
    statuses = {"a": worker("one", calls=[one]), "b": worker("two", calls=[nothing]), "c": dead}
    found = graph_of(statuses, instances_of(statuses, NOW), {})
    (call,) = [each for each in found["nodes"] if each["kind"] == "call"]
    group = next(each["label"] for each in found["nodes"] if each["kind"] == "group")
    assert (call["id"], call["label"], call["group"]) == (f"call {group} place", "place", group)
    assert (call["pending"], call["oldest_seconds"]) == (3, 9.0)
    (edge,) = [each for each in found["edges"] if each["target"] == call["id"]]
    assert (edge["source"], edge["how"], edge["rate"]) == (f"group {group}", "call", 2.0)


def test_too_many_late_records_come_with_what_would_help() -> None:
    due = {"topic": "count-minutes", "rows": 1, "late": 30, "moved_by": "payments"}
    places = [{**due, "partition": 0, "late_share": 0.05}, {**due, "partition": 1, "late_share": 0.06}]
    (found,) = instances_of({"a": worker("one", due=places)}, NOW)
    few, many = found["due"]
    assert few["late_advice"] == ""
    assert "payments had moved the watermark" in many["late_advice"]
