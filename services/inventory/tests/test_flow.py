"""The flow on the Tester: the engine's own code, without a broker."""

from typing import Literal
from uuid import UUID

import pytest

from contracts.records import CategoryStock, Price, PriceAdjustment, Product, Reorder, Stock, StockMovement
from inventory.flow import ADJUSTMENTS, HOUR_MS, MOVEMENTS, PRODUCTS, REORDERS, Inventory, inventory
from streamtable.flow import Windowed
from streamtable_testing import Tester

NOON_MS = 1_699_999_200_000  # a full hour, near the Tester's clock
Kind = Literal["listed", "shipped", "sold"]


class World:
    """The flow on a Tester, and what happens in its warehouses."""

    def __init__(self, tester: Tester) -> None:
        self.tester = tester
        self.made: Inventory = inventory()
        tester.create(REORDERS)
        for group in self.made.flow.groups:
            tester.run(group)
        self.number = 0

    def move(self, item: str, kind: Kind, quantity: int, at: int = 0, number: int | None = None) -> None:
        product, _, warehouse = item.partition("@")
        movement = StockMovement(
            id=self.new_id() if number is None else str(UUID(int=number)),
            product=product,
            warehouse=warehouse,
            kind=kind,
            quantity=quantity,
            at=NOON_MS + at,
        )
        self.tester.emit(MOVEMENTS, item, movement)

    def offer(self, product: str, category: str, price: int) -> None:
        row = Product(id=self.new_id(), product=product, category=category, price=price, at=NOON_MS)
        self.tester.emit(PRODUCTS, product, row)

    def adjust(self, item: str, percent: int | None) -> None:
        product, _, warehouse = item.partition("@")
        row = PriceAdjustment(
            id=self.new_id(), product=product, warehouse=warehouse, percent=percent, at=NOON_MS
        )
        self.tester.emit(ADJUSTMENTS, item, row)

    def new_id(self) -> str:
        self.number += 1
        return str(UUID(int=self.number))

    def quantities(self) -> dict[str, int]:
        return {item: row["quantity"] for item, row in self.tester.table(self.made.stock).items()}

    def categories(self) -> dict[str, CategoryStock]:
        return dict(self.tester.table(self.made.categories))

    def reorders(self) -> list[tuple[str | None, int]]:
        found: list[Reorder] = [each.value for each in self.tester.records(REORDERS) if each.value]
        return [(f"{each['product']}@{each['warehouse']}", each["quantity"]) for each in found]

    def letters(self, group: str = "") -> list[str]:
        return [letter.reason for letter in self.tester.dead_letters(self.made.flow.group(group))]


@pytest.fixture
def world(tester: Tester) -> World:
    return World(tester)


def test_stock_is_what_came_less_what_was_sold(world: World) -> None:
    for item in ("lamp@berlin", "lamp@oslo"):
        world.move(item, "listed", 0)
    world.move("lamp@berlin", "shipped", 10)
    world.move("lamp@oslo", "shipped", 4)
    world.move("lamp@berlin", "sold", 3)
    row = Stock(product="lamp", warehouse="berlin", quantity=7, threshold=0)
    assert world.tester.table(world.made.stock)["lamp@berlin"] == row
    assert world.quantities() == {"lamp@berlin": 7, "lamp@oslo": 4}


def test_a_repeated_movement_counts_once(world: World) -> None:
    world.move("lamp@berlin", "listed", 0)
    for _ in range(3):
        world.move("lamp@berlin", "shipped", 10, number=1000)
    assert world.quantities() == {"lamp@berlin": 10}


def test_a_stock_is_ordered_again_once_for_each_fall_below_its_threshold(world: World) -> None:
    world.move("lamp@berlin", "listed", 5)  # nothing is there yet
    world.move("lamp@berlin", "shipped", 6)
    world.move("lamp@berlin", "sold", 1)  # 5 are enough
    assert world.reorders() == [("lamp@berlin", 0)]
    for _ in range(3):
        world.move("lamp@berlin", "sold", 1)
    assert world.reorders() == [("lamp@berlin", 0), ("lamp@berlin", 4)]
    world.move("lamp@berlin", "shipped", 10)
    world.move("lamp@berlin", "sold", 8)
    assert world.reorders() == [("lamp@berlin", 0), ("lamp@berlin", 4), ("lamp@berlin", 4)]


def test_falls_within_one_batch_are_each_ordered(world: World) -> None:
    kinds: list[Kind] = ["listed", "shipped", "sold", "shipped", "sold", "shipped", "sold"]
    world.tester.emit_many(
        MOVEMENTS,
        [
            (
                "lamp@berlin",
                StockMovement(
                    id=world.new_id(), product="lamp", warehouse="berlin", kind=kind, quantity=5, at=NOON_MS
                ),
            )
            for kind in kinds
        ],
    )
    assert world.reorders() == [("lamp@berlin", 0)] * 4


def test_a_threshold_that_is_raised_above_the_stock_orders_again(world: World) -> None:
    world.move("lamp@berlin", "listed", 0)
    world.move("lamp@berlin", "shipped", 5)
    world.move("lamp@berlin", "listed", 6)
    assert world.reorders() == [("lamp@berlin", 5)]


def test_a_category_follows_its_stock_and_products_that_change_their_category(world: World) -> None:
    for item, quantity in (("lamp@berlin", 3), ("lamp@oslo", 4), ("desk@oslo", 2)):
        world.move(item, "listed", 0)
        world.move(item, "shipped", quantity)
    assert world.categories() == {}
    world.offer("lamp", "light", 2000)
    world.offer("desk", "wood", 9000)
    assert world.categories() == {
        "light": CategoryStock(items=2, quantity=7),
        "wood": CategoryStock(items=1, quantity=2),
    }
    world.move("lamp@oslo", "sold", 1)
    world.offer("lamp", "wood", 2000)
    assert world.categories() == {
        "light": CategoryStock(items=0, quantity=0),
        "wood": CategoryStock(items=3, quantity=8),
    }


def test_prices_follow_adjustments_and_products(world: World) -> None:
    world.adjust("lamp@berlin", -10)
    world.adjust("lamp@oslo", 25)
    assert world.tester.table(world.made.prices) == {}  # no such product yet
    world.offer("lamp", "light", 1999)
    world.offer("lamp", "light", 2001)
    world.adjust("lamp@oslo", None)
    assert world.tester.table(world.made.prices) == {
        "lamp@berlin": Price(product="lamp", warehouse="berlin", list_price=2001, percent=-10, price=1800)
    }


def test_a_product_or_an_adjustment_that_is_sent_again_does_not_bring_an_old_price_back(world: World) -> None:
    for number, price in ((1, 1000), (2, 2000), (1, 1000)):
        row = Product(id=str(UUID(int=number)), product="lamp", category="light", price=price, at=NOON_MS)
        world.tester.emit(PRODUCTS, "lamp", row)
    for number, percent in ((3, 25), (4, 50), (3, 25)):
        adjustment = PriceAdjustment(
            id=str(UUID(int=number)), product="lamp", warehouse="oslo", percent=percent, at=NOON_MS
        )
        world.tester.emit(ADJUSTMENTS, "lamp@oslo", adjustment)
    assert world.tester.table(world.made.prices) == {
        "lamp@oslo": Price(product="lamp", warehouse="oslo", list_price=2000, percent=50, price=3000)
    }


def test_sales_are_summed_by_product_and_hour_of_the_sale(world: World) -> None:
    for item in ("lamp@berlin", "lamp@oslo"):
        world.move(item, "listed", 0)
        world.move(item, "shipped", 100)
    for item, at, quantity in (
        ("lamp@berlin", 0, 2),
        ("lamp@oslo", HOUR_MS - 1, 3),
        ("lamp@oslo", HOUR_MS, 7),
        ("lamp@berlin", 10, 1),  # late for nothing: an hour is open for ten minutes more
    ):
        world.move(item, "sold", quantity, at)
    assert world.tester.table(world.made.hours) == {
        Windowed("lamp", NOON_MS, NOON_MS + HOUR_MS): 6,
        Windowed("lamp", NOON_MS + HOUR_MS, NOON_MS + 2 * HOUR_MS): 7,
    }


@pytest.mark.parametrize(
    ("item", "kind", "quantity", "reason"),
    [
        ("lamp@berlin", "sold", -1, "the quantity of a movement that is sold must be 1 to 1000000"),
        ("lamp@berlin", "shipped", 0, "must be 1 to 1000000"),
        ("lamp@berlin", "shipped", 2**62, "must be 1 to 1000000"),
        ("lamp@berlin", "listed", -1, "the quantity of a movement that is listed must be 0 to 1000000"),
        ("desk@berlin", "sold", 1, "unknown product: warehouse berlin does not list desk"),
        ("Lamp@berlin", "listed", 1, "lower-case letters"),
        ("lamp\n@berlin", "listed", 1, "lower-case letters"),
        ("lamp@", "listed", 1, "lower-case letters"),
    ],
)
def test_a_movement_that_cannot_be_is_a_dead_letter_and_changes_nothing(
    world: World, item: str, kind: Kind, quantity: int, reason: str
) -> None:
    world.move("lamp@berlin", "listed", 0)
    world.move("lamp@berlin", "shipped", 10)
    world.move(item, kind, quantity)
    (found,) = world.letters()
    assert reason in found
    assert world.quantities() == {"lamp@berlin": 10}
    assert world.reorders() == []
    assert world.tester.table(world.made.hours) == {}


def test_a_product_and_an_adjustment_that_cannot_be_are_dead_letters(world: World) -> None:
    world.offer("lamp", "Light!", 1)
    world.offer("lamp", "light", -1)
    world.offer("lamp", "light", 2**62)
    world.adjust("lamp@berlin", -101)
    world.adjust("berlin", 1)
    assert len(world.letters("products")) == 3
    assert len(world.letters()) == 2
    assert world.tester.table(world.made.prices) == {}


def test_all_of_it_is_the_same_after_the_loss_of_a_disk(world: World) -> None:
    world.offer("lamp", "light", 2000)
    world.move("lamp@berlin", "listed", 5)
    world.move("lamp@berlin", "shipped", 6)
    world.tester.commit()
    for group in world.made.flow.groups:
        world.tester.stop(group)
        world.tester.start(group, disk=False)
    world.move("lamp@berlin", "sold", 3)
    assert world.reorders() == [("lamp@berlin", 0), ("lamp@berlin", 3)]
    assert world.categories() == {"light": CategoryStock(items=1, quantity=3)}
