"""What the REST services take and give, as OpenAPI describes it."""

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
    """What all events have."""

    id: Annotated[
        UUID | None,
        CANONICAL_UUID,
        Field(description="names the event, so that a repeated request changes nothing. Default: a new one"),
    ] = None
    at: Annotated[
        int | None, TIME_MS, Field(description="when, in milliseconds since 1970; default: now")
    ] = None


class NewProduct(NewEvent):
    """What is known of a product; the last one that is sent counts."""

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
    """Pieces of a product come to a warehouse, or are sold from it."""

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
            description="what is added to the list price, in percent; null: nothing any longer",
        ),
    ]


AcceptedEvents: Final = accepted_model("AcceptedEvents", "The events of a list, in its order.")


class ItemStock(BaseModel):
    """How many pieces of a product a warehouse has."""

    item: str
    product: str
    warehouse: str
    quantity: Annotated[int, Field(description="pieces in stock; below zero: more were sold than came")]
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
    items: Annotated[int, Field(description="products that are stocked; one in two warehouses counts twice")]
    quantity: Annotated[int, Field(description="pieces in stock, of all of them")]


class HourSales(BaseModel):
    """The pieces of a product that were sold in an hour."""

    quantity: int


StockAnswer: Final = answer_model("StockAnswer", "A stock, and where in the table it stands.", ItemStock)
StockPage: Final = page_model("StockPage", "Items in the order of their UTF-8 bytes.", ItemStock)
PriceAnswer: Final = answer_model("PriceAnswer", "A price, and where in the table it stands.", ItemPrice)
CategoryAnswer: Final = answer_model(
    "CategoryAnswer", "A total, and where in the table it stands.", CategoryTotal
)
ProductHours: Final = windows_model(
    "ProductHours", "The sales of a product by hours, the earliest first; hours without sales are left out.",
    HourSales, key="product", what="sales",
)  # fmt: skip
