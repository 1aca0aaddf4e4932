"""Write `proto/openapi/messaging-web.json` from the service's code, and guard the released documents.

    python services/messaging/generate_openapi.py             write the document
    python services/messaging/generate_openapi.py --check     is it current, and can released clients go on?
    python services/messaging/generate_openapi.py --release   keep the document as its version's document

What it compares, and with what, is in `servicekit_testing.openapi_documents`.
"""

import sys
from pathlib import Path
from typing import Any, cast

from messaging.web import build_web
from servicekit_testing.openapi_documents import main

TARGET = Path(__file__).resolve().parents[2] / "proto" / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The document by its name. The application is only described, so nothing stands behind it."""
    nothing = cast("Any", None)
    web = build_web(nothing, nothing, nothing, ready=nothing, metrics=nothing, new_id=nothing, now_ms=nothing)
    return {"messaging-web": web.openapi()}


if __name__ == "__main__":
    sys.exit(main(documents(), sys.argv[1:], TARGET))
