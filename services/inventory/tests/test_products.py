"""Rows of PostgreSQL become events of the stream of products."""

from typing import Any

from inventory.flow import PRODUCTS
from inventory.products import EVENTS, ROWS, ProductRow
from streamtable_capture import DatabaseChange, DatabaseSource
from streamtable_testing import Tester


def test_a_row_that_is_inserted_or_updated_is_an_event_with_its_values() -> None:
    with Tester(partitions=3) as tester:
        tester.run(ROWS, EVENTS)

        def change(op: str, lsn: int, price: int | None) -> None:
            row = None if price is None else ProductRow("lamp", "light", price)
            source = DatabaseSource(schema="public", table="products", lsn=lsn)
            found: DatabaseChange[Any] = DatabaseChange(op=op, after=row, source=source)
            tester.emit(ROWS.source, "lamp", found)

        change("r", 10, 1999)
        change("u", 20, 2400)
        change("u", 20, 2400)  # the connector repeats it
        change("d", 30, None)
        events = [each.value for each in tester.records(PRODUCTS)]
        assert [(each["product"], each["category"], each["price"]) for each in events if each] == [
            ("lamp", "light", 1999),
            ("lamp", "light", 2400),
        ]
        assert tester.table(ROWS.table) == {}
        assert not tester.dead_letters(EVENTS)
