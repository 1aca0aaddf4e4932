"""A small data set with known results, for the demo and for tests: the events of two warehouses within an hour."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Requests = Sequence[tuple[str, Sequence[Mapping[str, Any]]]]

SETTING_UP: Final[Requests] = (
    (
        "/products",
        (
            {"product": "lamp", "category": "light", "price": 1999},
            {"product": "candle", "category": "light", "price": 250},
            {"product": "desk", "category": "wood", "price": 20000},
        ),
    ),
    (
        "/listings",
        (
            {"product": "lamp", "warehouse": "berlin", "threshold": 5},
            {"product": "lamp", "warehouse": "oslo", "threshold": 0},
            {"product": "candle", "warehouse": "oslo", "threshold": 100},
            {"product": "desk", "warehouse": "oslo", "threshold": 0},
        ),
    ),
    (
        "/adjustments",
        (
            {"product": "lamp", "warehouse": "oslo", "percent": 25},
            {"product": "desk", "warehouse": "oslo", "percent": -10},
        ),
    ),
)
"""Paths of the emitter with the requests to send to them, in this order."""

TRADING: Final[Requests] = (
    (
        "/shipments",
        (
            {"product": "lamp", "warehouse": "berlin", "quantity": 8},
            {"product": "lamp", "warehouse": "oslo", "quantity": 20},
            {"product": "candle", "warehouse": "oslo", "quantity": 500},
            {"product": "desk", "warehouse": "oslo", "quantity": 2},
        ),
    ),
    (
        "/sales",
        (
            {"product": "lamp", "warehouse": "berlin", "quantity": 4},  # 4 are left: the second order
            {"product": "lamp", "warehouse": "berlin", "quantity": 1},  # still below the threshold: no order
            {"product": "lamp", "warehouse": "oslo", "quantity": 2},
            {"product": "desk", "warehouse": "oslo", "quantity": 3},  # one more than there are
            {"product": "sofa", "warehouse": "oslo", "quantity": 1},  # not listed: a dead letter
        ),
    ),
    ("/shipments", ({"product": "lamp", "warehouse": "berlin", "quantity": 10},)),
    ("/sales", ({"product": "lamp", "warehouse": "berlin", "quantity": 9},)),  # 4 again: the third order
    ("/products", ({"product": "lamp", "category": "light", "price": 2400},)),
)
"""The further requests, to send afterwards."""

ANSWERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "/stock/lamp@berlin": {"quantity": 4, "threshold": 5},
    "/stock/lamp@oslo": {"quantity": 18, "threshold": 0},
    "/stock/candle@oslo": {"quantity": 500, "threshold": 100},
    "/stock/desk@oslo": {"quantity": -1, "threshold": 0},
    "/prices/lamp@oslo": {"list_price": 2400, "price": 3000},
    "/prices/desk@oslo": {"list_price": 20000, "price": 18000},
    "/categories/light": {"items": 3, "quantity": 522},
    "/categories/wood": {"items": 1, "quantity": -1},
}
"""Paths of the query service with members of their responses after all requests."""

HOURS: Final[Mapping[str, int]] = {"lamp": 16, "desk": 3}
"""Pieces sold by product, in the hour."""

REORDERED: Final[Mapping[str, Sequence[int]]] = {
    "lamp@berlin": (0, 4, 4),
    "candle@oslo": (0,),
    "desk@oslo": (-1,),
}
"""The reordered items, with the stock left each time: a new listing begins with an empty stock."""
