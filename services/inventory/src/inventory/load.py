"""The load generator: products, listings, shipments and sales, the same for the same seed."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from contracts.records import Product, StockMovement
from inventory.domain import item_of
from servicekit.process.load import LoadOptions, id_choice, key_choice

WAREHOUSES: Final = ("berlin", "lima", "osaka", "oslo")
CATEGORIES: Final = ("light", "steel", "wood")
THRESHOLD: Final = 20


def events(load: LoadOptions, now_ms: Callable[[], int]) -> Iterator[tuple[str, StockMovement | Product]]:
    """Yield the events of a load with their keys, without end. Everything but their times follows from the seed.

    Each product is sent, and listed in a warehouse, before its other events there. Five of six movements
    are sales of 1 to 5 pieces, the others shipments of 15.
    """
    random = Random(load.seed)  # noqa: S311 a load is to be repeatable, not unpredictable
    number_of, id_of = key_choice(load.keys, load.skew, load.seed), id_choice(load.seed)
    known: set[str] = set()

    def moved(product: str, warehouse: str, kind: str, quantity: int) -> tuple[str, StockMovement]:
        movement: StockMovement = {
            "id": str(id_of()),
            "product": product,
            "warehouse": warehouse,
            "kind": kind,  # type: ignore[typeddict-item] # one of them
            "quantity": quantity,
            "at": now_ms(),
        }
        return item_of(product, warehouse), movement

    while True:
        product = number_of().replace("user", "product")
        warehouse = random.choice(WAREHOUSES)
        if product not in known:
            known.add(product)
            category, price = random.choice(CATEGORIES), random.randint(100, 100_000)
            yield (
                product,
                Product(id=str(id_of()), product=product, category=category, price=price, at=now_ms()),
            )
        if (item := item_of(product, warehouse)) not in known:
            known.add(item)
            yield moved(product, warehouse, "listed", THRESHOLD)
        sold = random.random() < 5 / 6
        yield moved(product, warehouse, *(("sold", random.randint(1, 5)) if sold else ("shipped", 15)))
