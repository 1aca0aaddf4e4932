"""Tools show the sinks as groups that read their topics and write to their targets."""

from services.console.tests.world import status_with

from console.fleet import graph_of, instances_of
from inventory.sinks import DECLARED
from servicekit.status import graph
from streamtable_admin.graph_model import model_of

NOW_MS = 1_012_000


def test_a_graph_shows_what_each_sink_reads_and_the_table_that_it_is_written_to() -> None:
    model = model_of(DECLARED.values())
    edges = {(each.source, each.target): each.label for each in model.edges}
    assert edges == {
        ("topic inventory-stock", "group inventory-stock-out"): (
            "written to Postgres('inventory_stock'), on error dead letter"
        ),
        ("topic product-hours", "group inventory-hours-out"): (
            "written to Postgres('inventory_hours'), on error dead letter"
        ),
    }


def test_the_console_shows_a_sink_as_a_group_with_its_process_and_the_rate_that_it_reads() -> None:
    flows = [{"topic": "inventory-stock", "direction": "in", "records": 9, "rate": 4.5}]
    status = status_with(
        role="processor",
        group="inventory-stock-out",
        graph=graph.graph_of(DECLARED["inventory-stock-out"]),
        flows=flows,
    )
    statuses = {"one": status}
    shown = graph_of(statuses, instances_of(statuses, NOW_MS), {})
    kinds = {node["id"]: node["kind"] for node in shown["nodes"]}
    assert kinds["group inventory-stock-out"] == "group"
    rates = {(each["source"], each["target"]): each["rate"] for each in shown["edges"]}
    assert rates["topic inventory-stock", "group inventory-stock-out"] == 4.5
