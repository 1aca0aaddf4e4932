"""Write `openapi/*.json` from the services' code: `python services/click_count/generate_openapi.py`."""

import json
from pathlib import Path
from typing import Any, cast

from click_count.emitter import build_emitter
from click_count.query import build_query

TARGET = Path(__file__).parent / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The documents by service. The applications are only described, so nothing stands behind them."""
    nothing = cast("Any", None)
    emitter = build_emitter(nothing, ready=nothing, metrics=nothing, new_id=nothing, now_ms=nothing)
    query = build_query(nothing, nothing, nothing, nothing, metrics=nothing)
    return {"emitter": emitter.openapi(), "query": query.openapi()}


if __name__ == "__main__":
    TARGET.mkdir(exist_ok=True)
    for name, document in documents().items():
        text = json.dumps(document, indent=2, ensure_ascii=False)
        (TARGET / f"{name}.json").write_text(f"{text}\n", "utf-8")
