"""Write `proto/openapi/tweet-reach-*.json` from the services' code, and guard the released documents.

    python services/tweet_reach/generate_openapi.py             write the documents
    python services/tweet_reach/generate_openapi.py --check     are they current, and can released clients go on?
    python services/tweet_reach/generate_openapi.py --release   keep the documents as their versions' documents

What it compares, and with what, is in `servicekit_testing.openapi_documents`.
"""

import sys
from pathlib import Path
from typing import Any, cast

from servicekit_testing.openapi_documents import main
from tweet_reach.emitter import build_emitter
from tweet_reach.query import build_query

TARGET = Path(__file__).resolve().parents[2] / "proto" / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The documents by name. The applications are only described, so nothing stands behind them."""
    nothing = cast("Any", None)
    emitter = build_emitter(nothing, nothing, ready=nothing, metrics=nothing, new_id=nothing, now_ms=nothing)
    query = build_query(nothing, nothing, nothing, metrics=nothing)
    return {"tweet-reach-emitter": emitter.openapi(), "tweet-reach-query": query.openapi()}


if __name__ == "__main__":
    sys.exit(main(documents(), sys.argv[1:], TARGET))
