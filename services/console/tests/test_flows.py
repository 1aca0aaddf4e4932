"""Flows in the graph of recorded fleets."""

from services.console.tests.recorded import Member, Recording, inventory, shop


def flows(members: list[Member]) -> dict[str, set[str]]:
    """Return the labels of the nodes of each flow."""
    found: dict[str, set[str]] = {}
    for node in Recording(members, steps=1).document("/api/fleet")["graph"]["nodes"]:
        found.setdefault(node["flow"] or "", set()).add(node["label"])
    return found


def test_groups_of_one_process_are_a_flow_with_the_topics_that_only_they_use() -> None:
    found = flows(inventory())
    assert found[""] == {"stock-movements", "price-adjustments", "products", "reorders"}
    assert {"inventory", "inventory-products", "inventory-by-category", "inventory-by-product"} <= found[
        "inventory"
    ]
    assert {"inventory-adjusted-answers", "inventory-by-category", "inventory-stock"} <= found["inventory"]
    assert found.keys() == {"", "inventory"}


def test_a_table_that_a_view_shows_is_outside_of_its_flow() -> None:
    assert "inventory-stock" in flows(shop())[""]


def test_a_group_alone_is_no_flow_unless_it_has_inner_topics() -> None:
    plain = Member("count", "one", {"clicks": "stream"}, {"count-table": "table"})
    assert flows([plain]) == {"": {"count", "clicks", "count-table"}}
    loop = Member(
        "count", "one", {"clicks": "stream", "again": "loop"}, {"again": "loop", "count-seen": "state"}
    )
    assert flows([loop]) == {"": {"clicks"}, "count": {"count", "again", "count-seen"}}


def test_groups_of_different_processes_are_different_flows_even_with_the_same_instance_ids() -> None:
    one = Member("one", "worker", {"in": "stream"}, {"between": "stream"}, pid=1)
    other = Member("other", "worker", {"between": "stream"}, {"out": "stream"}, pid=2)
    assert flows([one, other]).keys() == {""}
