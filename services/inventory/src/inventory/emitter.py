"""The emitter service: accepts products, listings, shipments, sales and price adjustments over REST."""

from collections.abc import Callable
from typing import Any, Final

from contracts.records import PriceAdjustment, Product, StockMovement
from inventory.domain import item_of
from inventory.models import AcceptedEvents, NewAdjustment, NewListing, NewMovement, NewProduct
from servicekit.http.emitter_api import EmitterApi, PostEvents

_TEXT: Final = (
    "\n\n503 if Kafka does not acknowledge in time: `accepted` and `unknown` list the outcome of each. An unknown\none may be "
    "stored or not: send it again with the same `id`."
)


def _movement(kind: Any, new: NewListing | NewMovement, identity: str, at: int) -> StockMovement:
    quantity = new.threshold if isinstance(new, NewListing) else new.quantity
    return StockMovement(
        id=identity, product=new.product, warehouse=new.warehouse, kind=kind, quantity=quantity, at=at
    )


def _product(new: NewProduct, identity: str, at: int) -> Product:
    return Product(id=identity, product=new.product, category=new.category, price=new.price, at=at)


def _adjustment(new: NewAdjustment, identity: str, at: int) -> PriceAdjustment:
    return PriceAdjustment(
        id=identity, product=new.product, warehouse=new.warehouse, percent=new.percent, at=at
    )


def _post(path: str, what: str, event: type[Any], record: Callable[..., Any], stream: int = 0) -> PostEvents:
    by_item = event is not NewProduct
    return PostEvents(
        path,
        f"send_{path.strip('/')}",
        f"One {what} (answered with 201) or a list of them (200).{_TEXT}",
        event,
        AcceptedEvents,
        record,
        key=lambda new: item_of(new.product, new.warehouse) if by_item else new.product,
        one=f"One {what} was stored",
        stream=stream,
    )


EMITTER: Final = EmitterApi(
    title="inventory emitter",
    version="1.0.0",
    text="Accepts events about the stock of warehouses. A response of 200 or 201 means that Kafka has stored them on all "
    "in-sync replicas. Errors that only the processor can detect, such as a sale of a product that the warehouse does not "
    "list, become dead letters.",
    what="events",
    routes=(
        _post("/listings", "listing", NewListing, lambda *new: _movement("listed", *new)),
        _post("/shipments", "shipment", NewMovement, lambda *new: _movement("shipped", *new)),
        _post("/sales", "sale", NewMovement, lambda *new: _movement("sold", *new)),
        _post("/products", "product", NewProduct, _product, stream=1),
        _post("/adjustments", "price adjustment", NewAdjustment, _adjustment, stream=2),
    ),
)
build_emitter: Final = EMITTER.build
