from itertools import islice
from typing import Any

from inventory.domain import fault_of_movement, fault_of_product, moved
from inventory.load import events
from servicekit.process.load import LoadOptions


def made(load: LoadOptions) -> list[tuple[str, Any]]:
    return list(islice(events(load, lambda: 5), 500))


def test_everything_but_the_time_follows_from_the_seed() -> None:
    assert made(LoadOptions(seed=1, skew=1.0)) == made(LoadOptions(seed=1, skew=1.0))
    identities = {event["id"] for _, event in made(LoadOptions(seed=1))}
    assert len(identities) == 500
    assert identities.isdisjoint(event["id"] for _, event in made(LoadOptions(seed=2)))


def test_each_event_is_one_that_the_processor_takes() -> None:
    stock: dict[str, Any] = {}
    products = set()
    for key, event in made(LoadOptions(keys=7)):
        if "category" in event:
            assert fault_of_product(key, event) is None
            products.add(key)
        else:
            assert fault_of_movement(key, event, stock.get(key)) is None
            stock[key] = moved(stock.get(key), event)
    assert products == {f"product-{n}" for n in range(1, 8)}
    assert {row["product"] for row in stock.values()} == products
