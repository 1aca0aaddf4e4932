"""Write `proto/openapi/click-count-*.json` from the services' code, and guard the released documents.

    python services/click_count/generate_openapi.py             write the documents
    python services/click_count/generate_openapi.py --check     are they current, and can released clients go on?
    python services/click_count/generate_openapi.py --release   keep the documents as their versions' documents

What it compares, and with what, is in `servicekit_testing.openapi_documents`.
"""

import sys
from pathlib import Path
from typing import Any, cast

from click_count.emitter import build_emitter
from click_count.query import build_query
from servicekit_testing.openapi_documents import main

TARGET = Path(__file__).resolve().parents[2] / "proto" / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The documents by name. The applications are only described, so nothing stands behind them."""
    nothing = cast("Any", None)
    emitter = build_emitter(nothing, ready=nothing, metrics=nothing, new_id=nothing, now_ms=nothing)
    query = build_query(nothing, nothing, nothing, nothing, metrics=nothing)
    return {"click-count-emitter": emitter.openapi(), "click-count-query": query.openapi()}


if __name__ == "__main__":
    sys.exit(main(documents(), sys.argv[1:], TARGET))
