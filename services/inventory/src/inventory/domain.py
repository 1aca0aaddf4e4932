"""The domain logic of stock, reorders and prices, without any input or output."""

import re
from typing import Final

from contracts.records import (
    CategorizedStock,
    CategoryStock,
    Price,
    PriceAdjustment,
    Product,
    Stock,
    StockMovement,
)

NAME_PATTERN: Final = "^[a-z0-9][a-z0-9-]{0,62}$"
"""The pattern of the names of products, warehouses and categories."""
QUANTITY_MAX: Final = 1_000_000
PRICE_MAX: Final = 1_000_000_000
PERCENT_MIN, PERCENT_MAX = -100, 1000
_NAME: Final = re.compile(NAME_PATTERN.rstrip("$") + r"\Z")


def item_of(product: str, warehouse: str) -> str:
    """Return the key of a product in a warehouse."""
    return f"{product}@{warehouse}"


def is_name(text: str) -> bool:
    """Return whether this is a valid name of a product, a warehouse or a category."""
    return _NAME.match(text) is not None


def fault_of_movement(key: str, movement: StockMovement, stock: Stock | None) -> str | None:
    """Return the reason why a movement is invalid; None if it is valid.

    Args:
        key: The key of its record.
        movement: The movement.
        stock: The stock before it; None: the warehouse does not list the product.
    """
    if (fault := _fault_of_item(key, movement["product"], movement["warehouse"])) is not None:
        return fault
    least = 0 if movement["kind"] == "listed" else 1
    if not least <= movement["quantity"] <= QUANTITY_MAX:
        return f"the quantity of a movement that is {movement['kind']} must be {least} to {QUANTITY_MAX}"
    if stock is None and movement["kind"] != "listed":
        return f"unknown product: warehouse {movement['warehouse']} does not list {movement['product']}"
    return None


def fault_of_product(key: str, product: Product) -> str | None:
    """Return the reason why a product is invalid; None if it is valid."""
    if product["product"] != key:
        return "the key must be the product"
    if not (is_name(key) and is_name(product["category"])):
        return "the product and the category must be names of lower-case letters, digits and hyphens"
    if not 0 <= product["price"] <= PRICE_MAX:
        return f"the price must be 0 to {PRICE_MAX} cents"
    return None


def fault_of_adjustment(key: str, adjustment: PriceAdjustment) -> str | None:
    """Return the reason why an adjustment is invalid; None if it is valid."""
    percent = adjustment["percent"]
    if percent is not None and not PERCENT_MIN <= percent <= PERCENT_MAX:
        return f"the percentage must be {PERCENT_MIN} to {PERCENT_MAX}"
    return _fault_of_item(key, adjustment["product"], adjustment["warehouse"])


def moved(stock: Stock | None, movement: StockMovement) -> Stock:
    """Return the stock after a movement."""
    quantity, threshold = (0, 0) if stock is None else (stock["quantity"], stock["threshold"])
    if movement["kind"] == "listed":
        threshold = movement["quantity"]
    elif movement["kind"] == "shipped":
        quantity += movement["quantity"]
    else:
        quantity -= movement["quantity"]
    return Stock(
        product=movement["product"], warehouse=movement["warehouse"], quantity=quantity, threshold=threshold
    )


def is_low(stock: Stock | None) -> bool:
    """Return whether the stock is below its threshold."""
    return stock is not None and stock["quantity"] < stock["threshold"]


def priced(adjustment: PriceAdjustment, product: Product) -> Price:
    """Return the adjusted price of a product, rounded down to cents."""
    percent = adjustment["percent"] or 0
    return Price(
        product=product["product"],
        warehouse=adjustment["warehouse"],
        list_price=product["price"],
        percent=percent,
        price=product["price"] * (100 + percent) // 100,
    )


def categorized(stock: Stock, product: Product) -> CategorizedStock:
    """Return the contribution of a product's stock to the total of its category."""
    return CategorizedStock(category=product["category"], quantity=stock["quantity"])


def with_stock(total: CategoryStock, stock: CategorizedStock) -> CategoryStock:
    """Return the total of a category with one more stock."""
    return CategoryStock(items=total["items"] + 1, quantity=total["quantity"] + stock["quantity"])


def without_stock(total: CategoryStock, stock: CategorizedStock) -> CategoryStock:
    """Return the total of a category with one stock less."""
    return CategoryStock(items=total["items"] - 1, quantity=total["quantity"] - stock["quantity"])


def _fault_of_item(key: str, product: str, warehouse: str) -> str | None:
    if not (is_name(product) and is_name(warehouse)):
        return "the product and the warehouse must be names of lower-case letters, digits and hyphens"
    return None if key == item_of(product, warehouse) else "the key must be <product>@<warehouse>"
