"""The captured tables of the shop, and a program that keeps them: `python shop_capture.py KAFKA PREFIX FOLDER`."""

import sys
from typing import Any

from msgspec import Struct

from streamtable import App, Stream
from streamtable_capture import Capture, ConnectKey, Debezium


class Customer(Struct):
    id: int
    name: str
    active: bool
    bio: str | None = None


class Line(Struct):
    order_id: int
    line: int
    qty: int


class Code(Struct):
    code: str
    label: str | None
    text: str | None


def captures(prefix: str, **given: Any) -> dict[str, Capture[Any, Any]]:
    """Return the groups of the tables, whose names and topics begin with the prefix."""
    keys = {
        "customers": (ConnectKey(id=int), Customer),
        "lines": (ConnectKey(order_id=int, line=int), Line),
        "codes": (ConnectKey(code=str), Code),
    }
    found: dict[str, Capture[Any, Any]] = {}
    for table, (key, row) in keys.items():
        values: Debezium[Any] = Debezium(row, table=f"public.{table}")
        found[table] = Capture(
            f"{prefix}-{table}",
            Stream(f"{prefix}.public.{table}", key, values),
            **{"truncate": "clear", **given},
        )
    return found


def main(bootstrap_servers: str, prefix: str, folder: str) -> None:
    """Keep the tables until SIGTERM."""
    app = App(bootstrap_servers, state_dir=folder)
    app.run_all([app.processor(group, commit_interval=0.2) for group in captures(prefix).values()])


if __name__ == "__main__":
    main(*sys.argv[1:])
