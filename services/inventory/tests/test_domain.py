import pytest

from contracts.records import PriceAdjustment, Product
from inventory.domain import is_name, priced
from inventory.keys import item, item_prefix


@pytest.mark.parametrize("text", ["lamp", "l", "4x4", "desk-2-", "x" * 63])
def test_a_name_is_of_letters_digits_and_hyphens(text: str) -> None:
    assert is_name(text)
    assert item(f"{text}@{text}") == f"{text}@{text}"


@pytest.mark.parametrize("text", ["", "-lamp", "Lamp", "lamp ", "lamp\n", "é", "a@b", "x" * 64, "a/b"])
def test_what_is_no_name_makes_no_item(text: str) -> None:
    assert not is_name(text)
    for each in (f"lamp@{text}", f"{text}@oslo", text):
        if each != "a@b":
            with pytest.raises(ValueError, match="lamp@berlin"):
                item(each)


def test_an_item_begins_with_a_product() -> None:
    for text in ("", "lamp", "lamp@", "lamp@osl"):
        assert item_prefix(text) == text
    for text in ("@", "@oslo", "Lamp", "lamp@oslo@", "lamp@-"):
        with pytest.raises(ValueError, match="the beginning of"):
            item_prefix(text)


@pytest.mark.parametrize(("percent", "price"), [(-100, 0), (-10, 899), (0, 999), (1, 1008), (1000, 10989)])
def test_an_adjusted_price_is_rounded_down_to_cents(percent: int, price: int) -> None:
    adjustment = PriceAdjustment(id="", product="lamp", warehouse="oslo", percent=percent, at=0)
    product = Product(id="", product="lamp", category="light", price=999, at=0)
    assert priced(adjustment, product)["price"] == price
