"""Write `proto/openapi/inventory-*.json` from the services' code, and guard the released documents.

    python services/inventory/generate_openapi.py             write the documents
    python services/inventory/generate_openapi.py --check     are they current, and can released clients go on?
    python services/inventory/generate_openapi.py --release   keep the documents as their versions' documents

What it compares, and with what, is in `servicekit_testing.openapi_documents`.
"""

import sys
from pathlib import Path
from typing import Any, cast

from inventory.emitter import build_emitter
from inventory.query import Tables, build_query
from servicekit.http.read_your_writes import ReadYourWrites
from servicekit_testing.openapi_documents import main

TARGET = Path(__file__).resolve().parents[2] / "proto" / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The documents by name. The applications are only described, so nothing stands behind them."""
    nothing = cast("Any", None)
    emitter = build_emitter(
        nothing, nothing, nothing, ready=nothing, metrics=nothing, new_id=nothing, now_ms=nothing
    )
    unasked = cast("Any", object())  # None would stand for the service's own table
    tables = Tables(unasked, unasked, unasked)
    query = build_query(tables, {}, nothing, nothing, ReadYourWrites({}, 0), metrics=nothing)
    return {"inventory-emitter": emitter.openapi(), "inventory-query": query.openapi()}


if __name__ == "__main__":
    sys.exit(main(documents(), sys.argv[1:], TARGET))
