"""The answers of a recorded console about single items: a table, a topic, the dead letters of a group, and runs."""

import struct
from typing import Any, Final

from services.console.tests.world import run_with

BEGIN: Final = 1_790_000_000_000
HOUR_MS: Final = 3_600_000
_ADDRESS: Final = "https://example.org/a-page-with-a-long-name?" + "&".join(f"part={n}" for n in range(40))


def _text(value: str) -> dict[str, Any]:
    return {"type": "text", "value": value}


def _windowed(key: str, start: int) -> dict[str, Any]:
    return {"type": "hex", "value": (key.encode() + struct.pack(">q", start)).hex()}


def _click(user: str) -> dict[str, Any]:
    return {"type": "UserClick", "value": {"id": "7f" * 16, "user_id": user, "url": _ADDRESS, "at": BEGIN}}


def _record(number: int, key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": "user-clicks", "partition": number % 12, "offset": 91_800 + number, "timestamp": BEGIN + number,
        "key": key, "value": value, "headers": [{"name": "traceparent", **_text(f"00-{'ab' * 16}-{'cd' * 8}-01")}],
    }  # fmt: skip


def _letter(number: int) -> dict[str, Any]:
    return {
        "letter": f"3:{number}", "time": BEGIN + number, "attempt": 4, "error": "ValidationError", "message": "url: at most 2,048 characters",
        "origin": {"topic": "user-clicks", "partition": 3, "offset": 91_822 + number}, "key": _text(f"user-{number}"),
        "value": _click(f"user-{number}"), "value_omitted_bytes": 3_000_000 if number == 1 else None,
        "raw": {"key": b"user".hex(), "value": "c301" * 40}, "replayed": BEGIN + HOUR_MS if number == 2 else None,
    }  # fmt: skip


RUNS: Final = [
    run_with(run="etl-1", job="etl", state="running", stage="silver", stages_done=1, started_at=BEGIN - 60_000,
             at=BEGIN, finished_at=0, differences=-1),
    run_with(run="rebuild-1", job="rebuild", as_group="count-2", state="failed", started_at=BEGIN - HOUR_MS,
             error="RetryLater: no answer from the brokers"),
    run_with(run="audit-1", started_at=BEGIN, state="different", differences=2, report="lake/reports/audit-1.json",
             summary="2 of 40 rows are not as the inputs say",
             keys=[{"partition": 3, "key": "alice", "difference": "different", "expected": "3", "live": "2"},
                   {"partition": 1, "key": "zoe", "difference": "extra", "expected": "", "live": "1"}],
             inputs=[{"topic": "user-clicks", "partition": 0, "start": 5, "end": 1009}]),
]  # fmt: skip
_ROWS: Final = [
    {"id": name.encode().hex(), "key": _text(name), "value": {"type": "long", "value": count}}
    for name, count in (("alice", 1_204), ("bob", 31), ("zoe-with-a-name-that-is-long" * 3, 7))
]
_HOURS: Final = [
    {
        "id": _windowed(f"product-{each}", start)["value"],
        "key": _windowed(f"product-{each}", start),
        "value": {"type": "long", "value": 40 * each + start // HOUR_MS % 7},
    }
    for start in range(BEGIN - 8 * HOUR_MS, BEGIN, HOUR_MS)
    for each in range(3)
]
FILLED: Final[dict[str, Any]] = {
    "/api/letters/click-count": {"letters": [_letter(number) for number in range(3)], "complete": True},
    "/api/topics/user-clicks/records": {"records": [_record(n, _text(f"user-{n}"), _click(f"user-{n}")) for n in range(30)]},
    "/api/topics/inventory-by-product-hours/records": {
        "records": [_record(number, row["key"], row["value"]) for number, row in enumerate(reversed(_HOURS))]
    },
    "/api/tables/click-count-table/rows": {"rows": _ROWS, "next": None, "age_seconds": 0.4, "offset": 1_000},
    "/api/tables/inventory-by-product-hours/rows": {"rows": _HOURS, "next": None, "age_seconds": 0.4, "offset": 1_000},
    "/api/runs": {"runs": RUNS},
    **{f"/api/runs/{run['run']}": run for run in RUNS},
}  # fmt: skip
EMPTY: Final[dict[str, Any]] = {
    "/api/letters/click-count": {"letters": [], "complete": True},
    "/api/topics/user-clicks/records": {"records": []},
    "/api/tables/click-count-table/rows": {"rows": [], "next": None, "age_seconds": 0.0, "offset": 0},
    "/api/tables/inventory-by-product-hours/rows": {
        "rows": [],
        "next": None,
        "age_seconds": 0.0,
        "offset": 0,
    },
    "/api/runs": {"runs": []},
}
