"""Names and items as keys: their validation and their description in OpenAPI."""

from typing import Annotated, Any, Final

from fastapi import Path, Query
from pydantic import AfterValidator, Field

from inventory.domain import NAME_PATTERN, is_name
from servicekit.http.problems import invalid
from servicekit.http.table_api import KeyParameter
from servicekit.tables.keys import KeyRules

ITEM_CHARACTERS_MAX: Final = 127
_NAME_RULE: Final = "must be 1 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen"
_ITEM_RULE: Final = "must be a product and a warehouse, as in lamp@berlin"
_ITEM_PATTERN: Final = f"{NAME_PATTERN.rstrip('$')}@{NAME_PATTERN.lstrip('^')}"
_NAME_SCHEMA: Final[dict[str, Any]] = {"pattern": NAME_PATTERN, "minLength": 1, "maxLength": 63}
_PREFIX_SCHEMA: Final[dict[str, Any]] = {"pattern": "^[a-z0-9@-]*$", "maxLength": ITEM_CHARACTERS_MAX}


def name(text: str) -> str:
    """Return the text if it is a valid name of a product, a warehouse or a category. Raises `ValueError` with the rule."""
    if not is_name(text):
        raise ValueError(_NAME_RULE)
    return text


def item(text: str) -> str:
    """Return the text if it is a valid item. Raises `ValueError` with the rule."""
    if not all(map(is_name, text.split("@"))) or text.count("@") != 1:
        raise ValueError(_ITEM_RULE)
    return text


def item_prefix(text: str) -> str:
    """Return the text if an item can begin with it; an empty text is valid. Raises `ValueError` with the rule."""
    product, at, warehouse = text.partition("@")
    if (product and not is_name(product)) or (at and not product) or (warehouse and not is_name(warehouse)):
        raise ValueError("must be the beginning of a product and a warehouse, as in lamp@")
    return text


def _item_of_path(text: str) -> str:
    try:
        return item(text)
    except ValueError as error:
        raise invalid("path.item", str(error)) from None


def _name_of_path(text: str, parameter: str) -> str:
    try:
        return name(text)
    except ValueError as error:
        raise invalid(f"path.{parameter}", str(error)) from None


Name = Annotated[
    str,
    AfterValidator(name),
    Field(json_schema_extra={**_NAME_SCHEMA}, examples=["lamp"], description="a name"),
]
ITEM_KEYS: Final = KeyRules("item", item, item_prefix)
ITEM: Final = KeyParameter(
    "item",
    Annotated[
        str,
        Path(
            description="a product in a warehouse",
            json_schema_extra={"pattern": _ITEM_PATTERN, "maxLength": ITEM_CHARACTERS_MAX},
            examples=["lamp@berlin"],
        ),
    ],
    _item_of_path,
    "item",
    Annotated[
        str,
        AfterValidator(item_prefix),
        Query(
            description="only items with this prefix, such as lamp or lamp@",
            json_schema_extra={**_PREFIX_SCHEMA},
        ),
    ],
)
_NAME_OF_PATH: Any = Annotated[str, Path(json_schema_extra={**_NAME_SCHEMA}, examples=["lamp"])]
PRODUCT: Final = KeyParameter(
    "product", _NAME_OF_PATH, lambda text: _name_of_path(text, "product"), "product"
)
CATEGORY: Final = KeyParameter(
    "category", _NAME_OF_PATH, lambda text: _name_of_path(text, "category"), "category"
)
