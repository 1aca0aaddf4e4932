"""Write `proto/openapi/console.json` from the console's code, and guard the released documents.

    python services/console/generate_openapi.py             write the document
    python services/console/generate_openapi.py --check     is it current, and can released clients go on?
    python services/console/generate_openapi.py --release   keep the document as its version's document

What it compares, and with what, is in `servicekit_testing.openapi_documents`.
"""

import sys
from pathlib import Path
from typing import Any, cast

from console.web import Parts, build_web
from servicekit_testing.openapi_documents import main

TARGET = Path(__file__).resolve().parents[2] / "proto" / "openapi"


def documents() -> dict[str, dict[str, Any]]:
    """The document by its name. The application is only described, so nothing stands behind it."""
    nothing = cast("Any", None)
    parts = Parts(nothing, nothing, nothing, nothing, nothing, nothing, nothing, actions=True)
    return {"console": build_web(parts, ready=nothing, metrics=nothing).openapi()}


if __name__ == "__main__":
    sys.exit(main(documents(), sys.argv[1:], TARGET))
