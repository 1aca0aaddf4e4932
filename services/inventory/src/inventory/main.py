"""The command line: `inventory emitter|load|processor|products|ordering|sinks|view|query`. Settings come from the environment."""

from collections.abc import Mapping
from typing import Any, Final

from inventory import flow
from inventory.emitter import EMITTER
from inventory.load import events
from inventory.ordering import orders
from inventory.products import GROUPS
from inventory.query import Tables, build_query
from inventory.settings import InventorySettings
from inventory.sinks import serve_sinks
from inventory.view import CONTRACT
from servicekit.process import serving
from servicekit.process.runtime import Program
from servicekit.process.table_service import TableService, Texts
from streamtable import Table


def made(settings: InventorySettings) -> flow.Inventory:
    """Return the flow of the settings, with its tables."""
    return flow.inventory(settings.group)


def tables_of(settings: InventorySettings) -> Mapping[str, Table[str, Any]]:
    """Return the queried tables, by the topics that they are computed from: of these, clients write only movements."""
    inventory = made(settings)
    return {
        flow.MOVEMENTS.name: inventory.stock,
        f"{settings.group}-adjusted-answers": inventory.prices,
        f"{settings.group}-by-category": inventory.categories,
    }


SERVICE: Final = TableService(
    Program("inventory", InventorySettings, flow.MOVEMENTS.name),
    module="inventory.main",
    texts=Texts(
        service="Keeps the stock of warehouses: four services and a load generator.",
        emitter="Accept products, listings, shipments, sales and price adjustments over REST on STREAMTABLE_HTTP_ADDRESS and "
        "write them to Kafka.",
        load="Write generated shipments and sales to Kafka and report the acknowledged rate.",
        processor="Keep stock, prices, totals and hourly sales, and reorder items that run low: all groups of the flow.",
        query="Answer REST from local copies of the tables, on STREAMTABLE_HTTP_ADDRESS.",
    ),
    streams=[flow.MOVEMENTS, flow.PRODUCTS, flow.ADJUSTMENTS],
    what="events",
    load=events,
    stream_of=lambda event: int("category" in event),
    flow=lambda settings: made(settings).flow,
    tables=tables_of,
    windows=lambda settings: {flow.HOURS_TABLE: made(settings).hours},
    emitter=EMITTER,
    view=CONTRACT,
    query=lambda query: build_query(
        Tables(*query.views),
        query.windows,
        query.cursors,
        query.events,
        query.writes,
        metrics=query.runtime.metrics,
        edge=query.edge,
    ),
)
app: Final = SERVICE.command_line(
    further={
        "sinks": ("Write stock and closed hours to the PostgreSQL of INVENTORY_POSTGRES_URL.", serve_sinks),
        "products": (
            "Copy the products of PostgreSQL, which Debezium's connector writes to Kafka, to the stream of products.",
            lambda runtime: serving.serve_groups(runtime, [*GROUPS.values()], None),
        ),
        "ordering": (
            "Place the reorders at the supplier of INVENTORY_SUPPLIER, each once. After 20 failed attempts one is given up.",
            lambda runtime: serving.serve_groups(runtime, [orders(runtime.service.supplier)], None),
        ),
    }
)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
