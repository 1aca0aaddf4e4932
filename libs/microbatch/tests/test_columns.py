from typing import Any

import pyarrow as pa
import pytest

from contracts.records import USER_CLICK, UserClick
from microbatch import Batch, MicroBatch, Send
from streamtable import Avro, Json, Stream, String
from streamtable_testing import Tester

CLICKS = Stream("clicks", String(), Avro(USER_CLICK))
MIXED = Stream("mixed", String(), Json())


@pytest.fixture
def seen(tester: Tester) -> list[Any]:
    """The columns of each batch: of clicks, and of values without a common type."""
    found: list[Any] = []

    def look(batch: Batch, send: Send) -> None:
        found.append((batch.columns(CLICKS), batch.columns(MIXED)))

    tester.run(MicroBatch("g", inputs=[CLICKS, MIXED], process=look))
    return found


def test_records_of_avro_are_structs_beside_their_keys_offsets_and_times(
    tester: Tester, seen: list[Any]
) -> None:
    clicks: list[tuple[str, UserClick | None]] = [
        ("a", {"id": str(n), "user_id": "a", "url": "u", "at": n}) for n in range(3)
    ]
    tester.emit_many(CLICKS, clicks)
    ((columns, _),) = seen
    assert columns.schema.names == ["key", "value", "offset", "timestamp_ms"]
    assert columns.column("key").to_pylist() == ["a", "a", "a"]
    assert columns.column("value").field("at").to_pylist() == [0, 1, 2]
    assert columns.column("offset").to_pylist() == [0, 1, 2]
    assert columns.schema.field("timestamp_ms").type == pa.timestamp("ms", "UTC")


def test_values_without_a_common_type_are_left_out(tester: Tester, seen: list[Any]) -> None:
    events: list[tuple[str, Any]] = [("a", 1), ("a", "text")]
    tester.emit_many(MIXED, events)
    ((none, columns),) = seen
    assert columns.schema.names == ["key", "offset", "timestamp_ms"]
    assert (columns.num_rows, none.num_rows) == (2, 0)
