from datetime import timedelta

import pytest

from inventory.main import tables_of
from inventory.settings import InventorySettings
from streamtable import EventTime
from streamtable.errors import ConfigurationError


def test_without_variables_the_defaults_apply() -> None:
    settings = InventorySettings.from_environment({"PATH": "/bin", "CLICK_COUNT_GROUP": "other"})
    assert settings == InventorySettings(group="inventory")


def test_all_tables_take_their_names_from_the_group() -> None:
    settings = InventorySettings.from_environment({"INVENTORY_GROUP": "inventory-v2"})
    assert [table.name for table in tables_of(settings).values()] == [
        "inventory-v2-stock",
        "inventory-v2-prices",
        "inventory-v2-by-category-totals",
    ]


def test_an_invalid_setting_is_reported_by_name() -> None:
    with pytest.raises(ConfigurationError, match="INVENTORY_GROPU: there is no such setting"):
        InventorySettings.from_environment({"INVENTORY_GROPU": "a"})


@pytest.mark.parametrize("url", ["supplier:8090", "htp://supplier:8090", "https://", "http:///orders"])
def test_the_supplier_must_be_a_url_of_http_with_a_host(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"INVENTORY_SUPPLIER=.*: expected http://host:port"):
        InventorySettings.from_environment({"INVENTORY_SUPPLIER": url})


def test_events_may_be_ahead_by_an_hour_at_most_as_in_flows() -> None:
    settings = InventorySettings.from_environment({"INVENTORY_MAX_AHEAD_SECONDS": "3600"})
    assert timedelta(seconds=settings.max_ahead_seconds) == EventTime().max_ahead
    with pytest.raises(ConfigurationError, match=r"INVENTORY_MAX_AHEAD_SECONDS=.3601.: expected"):
        InventorySettings.from_environment({"INVENTORY_MAX_AHEAD_SECONDS": "3601"})
