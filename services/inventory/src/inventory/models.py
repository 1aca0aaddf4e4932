"""The request and response models of the REST services, for OpenAPI."""

from typing import Annotated, Final
from uuid import UUID

from pydantic import BaseModel, Field

from inventory.domain import PERCENT_MAX, PERCENT_MIN, PRICE_MAX, QUANTITY_MAX
from inventory.keys import Name
from servicekit.http.app import Strict
from servicekit.http.emitter_api import accepted_model
from servicekit.http.fields import CANONICAL_UUID, TIME_MS
from servicekit.http.models import answer_model, page_model, windows_model


class NewEvent(Strict):
    """The common members of all events."""

    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(
            description="the id of the event, which identifies a repeated request; an event of another item or product with it may "
            "not count. Default: a new one"
        ),
    ] = None
    at: Annotated[
        int | None,
        TIME_MS,
        Field(description="the time of the event, in milliseconds since 1970; default: now"),
    ] = None


class NewProduct(NewEvent):
    """The category and list price of a product; the last event sent applies."""

    product: Name
    category: Name
    price: Annotated[int, Field(ge=0, le=PRICE_MAX, description="the list price in cents")]


class NewListing(NewEvent):
    """A warehouse stocks a product from now on, or changes its threshold."""

    product: Name
    warehouse: Name
    threshold: Annotated[
        int, Field(ge=0, le=QUANTITY_MAX, description="the product is ordered again below this quantity")
    ]


class NewMovement(NewEvent):
    """Pieces of a product are shipped to a warehouse, or sold from it."""

    product: Name
    warehouse: Name
    quantity: Annotated[int, Field(ge=1, le=QUANTITY_MAX)]


class NewAdjustment(NewEvent):
    """A warehouse sells a product at another price."""

    product: Name
    warehouse: Name
    percent: Annotated[
        int | None,
        Field(
            ge=PERCENT_MIN,
            le=PERCENT_MAX,
            description="the percentage added to the list price; null: the adjustment ends",
        ),
    ]


AcceptedEvents: Final = accepted_model("AcceptedEvents", "The events of a list, in its order.")


class ItemStock(BaseModel):
    """The stock of a product in a warehouse."""

    item: str
    product: str
    warehouse: str
    quantity: Annotated[int, Field(description="pieces in stock; below zero, more were sold than received")]
    threshold: Annotated[int, Field(description="the product is ordered again below this quantity")]


class ItemPrice(BaseModel):
    """The adjusted price of a product in a warehouse, in cents."""

    item: str
    product: str
    warehouse: str
    list_price: int
    percent: int
    price: Annotated[int, Field(description="rounded down")]


class CategoryTotal(BaseModel):
    """The stock of all products of a category in all warehouses."""

    category: str
    items: Annotated[
        int, Field(description="the number of listed products; a product in two warehouses counts twice")
    ]
    quantity: Annotated[int, Field(description="the pieces in stock of all these products together")]


class HourSales(BaseModel):
    """The pieces of a product that were sold in an hour."""

    quantity: int


StockAnswer: Final = answer_model("StockAnswer", "A stock, with its position in the table.", ItemStock)
StockPage: Final = page_model("StockPage", "Items in the order of their UTF-8 bytes.", ItemStock)
PriceAnswer: Final = answer_model("PriceAnswer", "A price, with its position in the table.", ItemPrice)
CategoryAnswer: Final = answer_model(
    "CategoryAnswer", "A total, with its position in the table.", CategoryTotal
)
ProductHours: Final = windows_model(
    "ProductHours", "The sales of a product by hours, the earliest first; hours without sales are omitted.",
    HourSales, key="product", what="sales",
)  # fmt: skip
